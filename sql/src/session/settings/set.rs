//! SET, RESET and SET ROLE: changes of a session's settings.

use super::origin::Origin;
use super::parameters::{PARAMETERS, find};
use super::{Settings, assign_to, cannot_change, check};
use crate::backends::identity::{Identity, User};
use crate::parse::names;
use crate::planning::template::Template;
use crate::session::Session;
use crate::session::modes::{Modes, modes_of};
use crate::values::summary::Summary;
use datafusion::sql::sqlparser::ast::{self, Expr, Ident, ObjectName, Reset, UnaryOperator};
use std::sync::Arc;
use strandline_base::{Error, Result, SqlState};

impl Session {
    /// Applies the changes of settings that the finished statement requested (`set_config`).
    pub(in crate::session) fn apply_requests(&mut self) -> Result<()> {
        for request in self.registered.backend().take_requests() {
            if request.local && self.open.is_none() {
                continue; // its transaction has ended
            }
            let (name, value) = (request.name, request.value.as_deref());
            self.set_parameter(&name, value, request.local, &Origin::Session)?;
        }
        Ok(())
    }

    pub(in crate::session) fn set(&mut self, set: &ast::Set) -> Result<Summary> {
        match set {
            ast::Set::SingleAssignment {
                scope,
                variable,
                values,
                ..
            } => {
                let local = matches!(scope, Some(ast::ContextModifier::Local));
                self.assign(&name_of(variable)?, text_of(values)?.as_deref(), local)?;
            }
            ast::Set::SetTimeZone { local, value } => {
                let zone = text_of(std::slice::from_ref(value))?;
                self.assign("timezone", zone.as_deref(), *local)?;
            }
            ast::Set::SetNames { charset_name, .. } => {
                self.assign("client_encoding", Some(&charset_name.value), false)?;
            }
            other => return Err(Error::unsupported(format!("{other} is not supported"))),
        }
        Ok(Summary::tag("SET"))
    }

    pub(in crate::session) fn reset(&mut self, reset: &Reset) -> Result<Summary> {
        match reset {
            Reset::ALL => {
                for parameter in PARAMETERS {
                    if parameter.is_of_session() {
                        self.assign(parameter.name, None, false)?;
                    }
                }
                let own: Vec<String> = self.settings.custom.keys().cloned().collect();
                for name in own {
                    self.assign(&name, None, false)?;
                }
            }
            Reset::ConfigurationParameter(name) => self.assign(&name_of(name)?, None, false)?,
        }
        Ok(Summary::tag("RESET"))
    }

    fn assign(&mut self, name: &str, value: Option<&str>, local: bool) -> Result<()> {
        self.set_parameter(name, value, local, &Origin::Session)
    }

    /// Sets parameter `name`; None: to its default. `local`: until the transaction block ends.
    pub(crate) fn set_parameter(
        &mut self,
        name: &str,
        value: Option<&str>,
        local: bool,
        origin: &Origin,
    ) -> Result<()> {
        if find(name).is_none()
            && let Some(known) = self.foreign(name)
        {
            return Err(cannot_change(&known.name, " without restarting the server"));
        }
        let defaults = self.shared.defaults.clone();
        let mut settings = self.settings.clone();
        let changed = Arc::make_mut(&mut settings);
        assign_to(changed, &defaults, name, value, origin)?;
        let Some(open) = &mut self.open else {
            if local {
                self.notice(
                    SqlState::NO_ACTIVE_SQL_TRANSACTION,
                    "SET LOCAL can only be used in transaction blocks",
                );
            } else {
                self.restore(settings);
            }
            return Ok(());
        };
        // A statement has run, so the setting of the transaction's snapshots is fixed.
        let fixed = settings.speculative_reads != self.settings.speculative_reads;
        if fixed && open.used {
            return Err(Error::invalid(
                SqlState::ACTIVE_SQL_TRANSACTION,
                format!("parameter \"{name}\" must be set before any query of the transaction"),
            ));
        }
        if !local {
            let kept = Arc::make_mut(&mut open.kept);
            assign_to(kept, &defaults, name, value, origin)?;
        }
        self.restore(settings);
        if fixed {
            self.begin_again()?;
        }
        Ok(())
    }

    /// Puts `settings` in force: in the registry, in the open transaction and in the planner's
    /// template.
    pub(in crate::session) fn restore(&mut self, settings: Arc<Settings>) {
        let moved = self.settings.search_path != settings.search_path
            || self.settings.access != settings.access;
        let changed = !Arc::ptr_eq(&self.settings, &settings);
        self.settings = settings;
        if changed {
            self.report_settings();
            if let Some(open) = &self.open {
                let settings = &self.settings;
                open.transaction.adjust(
                    settings.synchronous_commit,
                    settings.conflict_policy,
                    settings.lock_timeout,
                );
            }
        }
        if moved {
            let mut state = self.template.state().clone();
            let options = state.config_mut().options_mut();
            options.catalog.default_schema = self.settings.search_path.clone();
            state
                .config_mut()
                .set_extension(Arc::new(self.settings.access));
            self.template = Template::new(state);
        }
    }

    /// SET ROLE: the session acts as `name` from now on; None: as the session user.
    pub(in crate::session) fn set_role(&mut self, name: Option<&Ident>) -> Result<Summary> {
        let Some(identity) = Identity::of(&self.template) else {
            return Err(Error::internal("a session without an identity"));
        };
        let session_user = identity.session_user.clone();
        let current_user = match name {
            None => session_user.clone(),
            Some(name) => self.role_to_be(&names::fold(name), &session_user)?,
        };
        let (template, random) = (&self.template, &self.shared.random);
        let registered = &self.registered;
        let state = Identity::put_into(
            template,
            registered,
            random,
            session_user,
            current_user,
            check,
        );
        self.template = Template::new(state);
        Ok(Summary::tag("SET"))
    }

    fn role_to_be(&self, name: &str, session_user: &User) -> Result<User> {
        let catalog = self.shared.db.catalog();
        let access = &catalog.access;
        let Some(role) = access.role(name) else {
            return Err(Error::invalid(
                SqlState::INVALID_PARAMETER_VALUE,
                format!("role \"{name}\" does not exist"),
            ));
        };
        let member = access.memberships(session_user.role).contains(&role.id);
        if !member && !access.is_superuser(session_user.role) {
            return Err(Error::invalid(
                SqlState("42501"),
                format!("permission denied to set role \"{name}\""),
            ));
        }
        Ok(User {
            role: role.id,
            name: role.name.as_str().into(),
        })
    }

    /// The modes of the open transaction, else of the next one.
    pub(super) fn modes(&self) -> Modes {
        match &self.open {
            Some(open) => modes_of(&open.transaction),
            None => self.default_modes(),
        }
    }
}

fn name_of(name: &ObjectName) -> Result<String> {
    let name = names::parts(name)?.join(".").to_lowercase();
    Ok(if name == "time zone" {
        "timezone".to_string()
    } else {
        name
    })
}

/// The text of SET's value: words, strings, numbers, joined by commas; None is DEFAULT.
fn text_of(values: &[Expr]) -> Result<Option<String>> {
    match values {
        [Expr::Identifier(word)]
            if word.quote_style.is_none() && word.value.eq_ignore_ascii_case("default") =>
        {
            Ok(None)
        }
        [Expr::Value(v)] if v.value == ast::Value::Null => Ok(None),
        values => joined(values).map(Some),
    }
}

fn joined(values: &[Expr]) -> Result<String> {
    let parts = values
        .iter()
        .map(|value| match value {
            Expr::Identifier(ident) => Ok(names::fold(ident)),
            Expr::CompoundIdentifier(parts) => {
                Ok(parts.iter().map(names::fold).collect::<Vec<_>>().join("."))
            }
            Expr::Value(v) => match &v.value {
                ast::Value::SingleQuotedString(text) => Ok(text.clone()),
                ast::Value::Boolean(on) => Ok(on.to_string()),
                ast::Value::Number(number, _) => Ok(number.to_string()),
                other => Err(bad_value(&other.to_string())),
            },
            Expr::UnaryOp {
                op: UnaryOperator::Minus,
                expr,
            } => Ok(format!("-{}", joined(std::slice::from_ref(expr))?)),
            other => Err(bad_value(&other.to_string())),
        })
        .collect::<Result<Vec<_>>>()?;
    Ok(parts.join(", "))
}

fn bad_value(value: &str) -> Error {
    Error::invalid(
        SqlState::INVALID_PARAMETER_VALUE,
        format!("SET takes a word, a text or a number, not {value}"),
    )
}
