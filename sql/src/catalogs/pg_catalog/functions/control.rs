//! Sessions and the server: `pg_sleep`, `pg_cancel_backend`, the session's user, address and
//! process.

use super::{Definition, argument, number, stable};
use crate::backends::activity::{Backend, SettingRequest};
use crate::catalogs::pg_catalog::catalog_value::CatalogValue;
use crate::catalogs::pg_catalog::system::System;
use crate::runtime::blocking;
use std::sync::Arc;
use std::time::Duration;
use strandline_base::{Error, Result, SqlState};

pub(super) const FUNCTIONS: &[Definition] = &[
    stable("pg_backend_pid", "int4", |system, _| {
        let pid = system
            .identity
            .as_ref()
            .map(|identity| identity.backend.pid());
        Ok(CatalogValue::option(pid))
    }),
    stable("pg_sleep", "void", sleep).volatile(),
    stable("pg_cancel_backend", "bool", |system, args| {
        signal(system, args, "cancel", |backend| backend.cancel().cancel())
    })
    .volatile(),
    stable("pg_terminate_backend", "bool", |system, args| {
        signal(system, args, "terminate", |backend| {
            backend.cancel().terminate()
        })
    })
    .volatile(),
    stable("current_setting", "text", current_setting),
    stable("set_config", "text", set_config)
        .volatile()
        .not_strict(),
    // There are no advisory locks.
    stable("pg_advisory_unlock_all", "void", |_, _| Ok("".into())).volatile(),
    stable("pg_is_in_recovery", "bool", |_, _| Ok(false.into())),
    stable("pg_is_wal_replay_paused", "bool", |_, _| Ok(false.into())),
    stable("pg_is_other_temp_schema", "bool", |_, _| Ok(false.into())),
    stable("pg_my_temp_schema", "oid", |_, _| Ok(0.into())),
    stable("inet_server_addr", "inet", nothing).not_strict(),
    stable("inet_server_port", "int4", nothing).not_strict(),
    stable("inet_client_addr", "inet", |system, _| {
        let client = system
            .identity
            .as_ref()
            .and_then(|i| i.backend.state().client);
        let host = client.as_deref().and_then(|c| c.rsplit_once(':'));
        Ok(CatalogValue::option(host.map(|(host, _)| host)))
    }),
    stable("inet_client_port", "int4", |system, _| {
        let client = system
            .identity
            .as_ref()
            .and_then(|i| i.backend.state().client);
        let port = client.as_deref().and_then(|c| c.rsplit_once(':'));
        Ok(CatalogValue::option(
            port.and_then(|(_, port)| port.parse::<i32>().ok()),
        ))
    }),
    stable("pg_blocking_pids", "int4[]", |_, _| {
        Ok(CatalogValue::Ints(Vec::new()))
    }),
];

fn nothing(_: &System, _: &[CatalogValue]) -> Result<CatalogValue> {
    Ok(CatalogValue::Null)
}

/// The value of a setting; NULL for an unknown one if the second argument is true.
fn current_setting(system: &System, args: &[CatalogValue]) -> Result<CatalogValue> {
    let name = argument(args, 0).as_text().unwrap_or_default();
    let settings = system.settings();
    if let Some(found) = settings
        .iter()
        .find(|setting| setting.name.eq_ignore_ascii_case(name))
    {
        return Ok(system.value_of(found).into());
    }
    if argument(args, 1).is_true() {
        return Ok(CatalogValue::Null);
    }
    Err(Error::invalid(
        SqlState::UNDEFINED_OBJECT,
        format!("unrecognized configuration parameter \"{name}\""),
    ))
}

/// Asks for a change of a setting; it is made when the statement ends. What the setting is then.
fn set_config(system: &System, args: &[CatalogValue]) -> Result<CatalogValue> {
    let Some(name) = argument(args, 0).as_text() else {
        return Err(Error::invalid(
            SqlState("22004"),
            "SET requires parameter name",
        ));
    };
    let name = name.to_lowercase();
    let value = argument(args, 1).as_text();
    let Some(identity) = &system.identity else {
        return Ok(CatalogValue::Null);
    };
    let shown = (identity.check_setting)(&name, value)?;
    identity.backend.request(SettingRequest {
        name,
        value: value.map(str::to_string),
        local: argument(args, 2).is_true(),
    });
    Ok(shown.into())
}

/// Waits that many seconds, or until the statement is cancelled.
fn sleep(system: &System, args: &[CatalogValue]) -> Result<CatalogValue> {
    let seconds = match argument(args, 0) {
        CatalogValue::Float(seconds) => *seconds,
        other => other.as_int().unwrap_or(0) as f64,
    };
    let duration = Duration::try_from_secs_f64(seconds.max(0.0)).unwrap_or(Duration::MAX);
    let Some(identity) = &system.identity else {
        return Ok(CatalogValue::Null);
    };
    let cancel = identity.backend.cancel();
    blocking::wait(async {
        tokio::select! {
            () = tokio::time::sleep(duration) => Ok("".into()),
            error = cancel.cancelled() => Err(error),
        }
    })
}

/// Does something to the session with the number in the first argument; false if there is none.
fn signal(
    system: &System,
    args: &[CatalogValue],
    what: &str,
    act: fn(&Backend),
) -> Result<CatalogValue> {
    let Some(identity) = &system.identity else {
        return Ok(false.into());
    };
    let pid = i32::try_from(number(args, 0)).unwrap_or(0);
    let Some(backend) = identity.registry.find(pid) else {
        return Ok(false.into());
    };
    require_power_over(system, &backend, what)?;
    act(&backend);
    Ok(true.into())
}

/// 42501 unless the session is one's own user's, or of one that the user is a member of.
fn require_power_over(system: &System, backend: &Arc<Backend>, what: &str) -> Result<()> {
    let access = &system.catalog.access;
    let user = system.current_user().role;
    let other = system.role(&backend.user());
    let superior = other.is_some_and(|other| access.is_superuser(other));
    let member = other.is_some_and(|other| access.powers(user).contains(&other));
    if access.is_superuser(user) || (member && !superior) {
        return Ok(());
    }
    let whose = match superior {
        true => "superuser process".to_string(),
        false => "other server process".to_string(),
    };
    let verb = if what == "cancel" {
        "cancel query"
    } else {
        "terminate process"
    };
    let message = match superior {
        true => format!("must be a superuser to {verb} of {whose}"),
        false => format!(
            "must be a member of the role whose {} or member of pg_signal_backend",
            if what == "cancel" {
                "query is being canceled"
            } else {
                "process is being terminated"
            }
        ),
    };
    Err(Error::invalid(SqlState("42501"), message))
}
