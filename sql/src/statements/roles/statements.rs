//! CREATE, ALTER and DROP ROLE (USER, GROUP).

use super::scram::ScramVerifier;
use crate::backends::acting::DENIED;
use crate::backends::identity::Identity;
use crate::parse::names;
use crate::planning::context::StatementContext;
use crate::values::summary::Summary;
use datafusion::sql::sqlparser::ast::{
    AlterRoleOperation, CreateRole, Expr, Ident, ObjectName, Password, RoleOption, UnaryOperator,
    Value,
};
use std::sync::Arc;
use strandline_base::{Error, Result, SqlState};
use strandline_engine::access::{Access, BOOTSTRAP, Object, RoleDef, RoleId};
use strandline_engine::catalog::Catalog;

/// A role without privileges.
pub fn new_role(id: RoleId, name: String) -> RoleDef {
    RoleDef {
        id,
        name,
        superuser: false,
        login: false,
        create_role: false,
        create_database: false,
        inherit: true,
        connection_limit: None,
        valid_until_us: None,
        verifier: None,
        member_of: Vec::new(),
        comment: None,
    }
}

/// 42704.
pub fn undefined_role(name: &str) -> Error {
    Error::invalid(
        SqlState::UNDEFINED_OBJECT,
        format!("role \"{name}\" does not exist"),
    )
}

/// The session of a statement about roles.
pub fn identity(context: &StatementContext) -> Result<Arc<Identity>> {
    Identity::of(&context.state).ok_or_else(|| Error::internal("a statement without a session"))
}

fn denied(message: impl Into<String>) -> Error {
    Error::invalid(DENIED, message)
}

/// The user's rights over roles.
struct Power {
    user: RoleId,
    superuser: bool,
    create_role: bool,
}

impl Power {
    fn of(context: &StatementContext, access: &Access) -> Result<Self> {
        let user = identity(context)?.current_user.role;
        let superuser = access.is_superuser(user);
        let role = access.roles.get(&user);
        Ok(Self {
            user,
            superuser,
            create_role: superuser || role.is_some_and(|role| role.create_role),
        })
    }
}

fn change(
    context: &StatementContext,
    edit: &mut dyn FnMut(&mut Catalog) -> Result<()>,
) -> Result<()> {
    let is_remote = identity(context)?.backend.is_remote();
    let transaction = context.statement.transaction();
    transaction.change_catalog(&mut |catalog| {
        let had_users = catalog.access.has_users();
        edit(catalog)?;
        if is_remote && (had_users || catalog.access.has_users()) {
            keep_an_administrator(&catalog.access, transaction.db().now_us())?;
        }
        Ok(())
    })
}

/// An error unless a user can administer the database. Otherwise a client could lock everybody out
/// of a server that requires logins. An embedding program always can administer.
fn keep_an_administrator(access: &Access, now_us: u64) -> Result<()> {
    if access.administrator(now_us).is_some() {
        return Ok(());
    }
    Err(Error::invalid(
        SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE,
        "no superuser could log in to this server any more",
    )
    .with_detail("Once there are users, every client has to log in as one of them.")
    .with_hint("Create a superuser first: CREATE USER admin SUPERUSER PASSWORD '…'."))
}

/// Executes CREATE ROLE.
pub fn create(context: &StatementContext, create: &CreateRole) -> Result<Summary> {
    let options = options_of(create);
    let identity = identity(context)?;
    change(context, &mut |catalog| {
        let access = catalog.access_mut();
        let power = Power::of(context, access)?;
        if !power.create_role {
            return Err(denied("permission denied to create role"));
        }
        for name in &create.names {
            let name = names::single(name)?;
            check_name(&name)?;
            if access.role(&name).is_some() || name == access.role_name(BOOTSTRAP) {
                let message = format!("role \"{name}\" already exists");
                let taken = Error::invalid(SqlState::DUPLICATE_OBJECT, message);
                context.skip(create.if_not_exists, taken)?;
                continue;
            }
            let mut role = new_role(access.new_role_id(), name);
            apply(&mut role, &options, &power, &identity)?;
            for group in create.in_role.iter().chain(&create.in_group) {
                let group = require(access, group)?;
                require_admin_of(access, power.user, group)?;
                role.member_of.push(group);
            }
            let id = role.id;
            access.put_role(role);
            let members = create.role.iter().chain(&create.user).chain(&create.admin);
            for member in members {
                let member = require(access, member)?;
                add_membership(access, id, member)?;
            }
        }
        Ok(())
    })?;
    Ok(Summary::tag("CREATE ROLE"))
}

fn check_name(name: &str) -> Result<()> {
    names::check(name)?;
    if name.starts_with("pg_") || name == "public" || name == "none" {
        return Err(Error::invalid(
            SqlState("42939"),
            format!("role name \"{name}\" is reserved"),
        )
        .with_detail("Role names starting with \"pg_\" are reserved."));
    }
    Ok(())
}

/// The id of role `name`; 42704 if there is none.
pub fn require(access: &Access, name: &Ident) -> Result<RoleId> {
    let name = names::fold(name);
    find(access, &name).ok_or_else(|| undefined_role(&name))
}

/// The id of role `name`.
pub fn find(access: &Access, name: &str) -> Option<RoleId> {
    let named = access.role(name).map(|role| role.id);
    named.or_else(|| (name == access.role_name(BOOTSTRAP)).then_some(BOOTSTRAP))
}

/// Whether `role` is a superuser or can become one by SET ROLE.
fn leads_to_superuser(access: &Access, role: RoleId) -> bool {
    let groups = access.memberships(role);
    groups.iter().any(|group| access.is_superuser(*group))
}

/// 42501 unless `user` may let roles into `group` and out of it.
pub fn require_admin_of(access: &Access, user: RoleId, group: RoleId) -> Result<()> {
    if access.is_superuser(user) {
        return Ok(());
    }
    if leads_to_superuser(access, group) {
        return Err(denied("must be superuser to alter superusers"));
    }
    match access.roles.get(&user).is_some_and(|role| role.create_role) {
        true => Ok(()),
        false => Err(denied(format!(
            "must have admin option on role \"{}\"",
            access.role_name(group)
        ))),
    }
}

/// Makes `member` a member of `group`; 0LP01 if that would close a circle.
pub fn add_membership(access: &mut Access, group: RoleId, member: RoleId) -> Result<()> {
    if access.memberships(group).contains(&member) {
        return Err(Error::invalid(
            SqlState("0LP01"),
            format!(
                "role \"{}\" is a member of role \"{}\"",
                access.role_name(group),
                access.role_name(member)
            ),
        ));
    }
    let name = access.role_name(member);
    let Some(role) = access.roles.get_mut(&member) else {
        return Err(undefined_role(&name));
    };
    if !role.member_of.contains(&group) {
        Arc::make_mut(role).member_of.push(group);
    }
    Ok(())
}

fn options_of(create: &CreateRole) -> Vec<RoleOption> {
    let flags = [
        create.login.map(RoleOption::Login),
        create.inherit.map(RoleOption::Inherit),
        create.superuser.map(RoleOption::SuperUser),
        create.create_db.map(RoleOption::CreateDB),
        create.create_role.map(RoleOption::CreateRole),
        create.replication.map(RoleOption::Replication),
        create.bypassrls.map(RoleOption::BypassRLS),
    ];
    let limit = create.connection_limit.clone();
    let until = create.valid_until.clone();
    let password = create.password.clone();
    flags
        .into_iter()
        .flatten()
        .chain(limit.map(RoleOption::ConnectionLimit))
        .chain(until.map(RoleOption::ValidUntil))
        .chain(password.map(RoleOption::Password))
        .collect()
}

fn apply(
    role: &mut RoleDef,
    options: &[RoleOption],
    power: &Power,
    identity: &Identity,
) -> Result<()> {
    for option in options {
        match option {
            RoleOption::SuperUser(superuser) => {
                if *superuser && !power.superuser {
                    return Err(denied("must be superuser to create superusers"));
                }
                role.superuser = *superuser;
            }
            RoleOption::Login(login) => role.login = *login,
            RoleOption::Inherit(inherit) => role.inherit = *inherit,
            RoleOption::CreateRole(create) => role.create_role = *create,
            RoleOption::CreateDB(create) => role.create_database = *create,
            RoleOption::Replication(false) | RoleOption::BypassRLS(false) => {}
            RoleOption::Replication(true) | RoleOption::BypassRLS(true) => {
                return Err(Error::unsupported(format!(
                    "{option} is not supported: there is nothing for it to allow"
                )));
            }
            RoleOption::ConnectionLimit(limit) => role.connection_limit = limit_of(limit)?,
            RoleOption::ValidUntil(moment) => role.valid_until_us = moment_of(moment)?,
            RoleOption::Password(password) => {
                role.verifier = verifier_of(password, identity)?;
            }
        }
    }
    Ok(())
}

fn limit_of(limit: &Expr) -> Result<Option<u32>> {
    let wrong = || {
        Error::invalid(
            SqlState::INVALID_PARAMETER_VALUE,
            format!("invalid connection limit: {limit}"),
        )
    };
    let (negative, number) = match limit {
        Expr::UnaryOp {
            op: UnaryOperator::Minus,
            expr,
        } => (true, expr.as_ref()),
        other => (false, other),
    };
    let Expr::Value(value) = number else {
        return Err(wrong());
    };
    let Value::Number(digits, _) = &value.value else {
        return Err(wrong());
    };
    match (negative, digits.parse::<u32>()) {
        (true, Ok(1)) => Ok(None),
        (false, Ok(limit)) => Ok(Some(limit)),
        _ => Err(wrong()),
    }
}

fn text_of(expr: &Expr) -> Option<&str> {
    match expr {
        Expr::Value(value) => match &value.value {
            Value::SingleQuotedString(text) | Value::EscapedStringLiteral(text) => Some(text),
            Value::DollarQuotedString(quoted) => Some(&quoted.value),
            _ => None,
        },
        _ => None,
    }
}

fn moment_of(expr: &Expr) -> Result<Option<i64>> {
    let text = text_of(expr).unwrap_or_default();
    if text.trim().eq_ignore_ascii_case("infinity") {
        return Ok(None);
    }
    let moment = strandline_semantics::text::temporal::parse_timestamptz(text)?;
    Ok(Some(moment))
}

fn verifier_of(password: &Password, identity: &Identity) -> Result<Option<String>> {
    let Password::Password(expr) = password else {
        return Ok(None);
    };
    let Some(text) = text_of(expr) else {
        return Err(Error::invalid(
            SqlState::SYNTAX_ERROR,
            "a password is a quoted string",
        ));
    };
    if text.is_empty() {
        // As in PostgreSQL, an empty password permits no login.
        return Ok(None);
    }
    if ScramVerifier::parse(text).is_some() {
        return Ok(Some(text.to_string()));
    }
    let verifier = ScramVerifier::new(text, &*identity.random)?;
    Ok(Some(verifier.to_text()))
}

/// Executes ALTER ROLE.
pub fn alter(
    context: &StatementContext,
    name: &Ident,
    operation: &AlterRoleOperation,
) -> Result<Summary> {
    let identity = identity(context)?;
    change(context, &mut |catalog| {
        let access = catalog.access_mut();
        let power = Power::of(context, access)?;
        let id = match names::fold(name).as_str() {
            "current_user" | "current_role" if name.quote_style.is_none() => power.user,
            _ => require(access, name)?,
        };
        let Some(mut role) = access.roles.get(&id).map(|role| RoleDef::clone(role)) else {
            return Err(undefined_role(&names::fold(name)));
        };
        // A new password of such a role would be a way to become a superuser.
        if id != power.user && !power.superuser && leads_to_superuser(access, id) {
            return Err(denied(
                "must be superuser to alter superuser roles or change superuser attribute",
            ));
        }
        match operation {
            AlterRoleOperation::WithOptions { options } => {
                let own_password = id == power.user
                    && options.iter().all(|o| matches!(o, RoleOption::Password(_)));
                if !power.create_role && !own_password {
                    return Err(denied("permission denied"));
                }
                apply(&mut role, options, &power, &identity)?;
                keep_a_superuser(access, &role)?;
            }
            AlterRoleOperation::RenameRole { role_name } => {
                if !power.create_role {
                    return Err(denied("permission denied to rename role"));
                }
                let new = names::fold(role_name);
                check_name(&new)?;
                if access.role(&new).is_some() {
                    return Err(Error::invalid(
                        SqlState::DUPLICATE_OBJECT,
                        format!("role \"{new}\" already exists"),
                    ));
                }
                role.name = new;
            }
            AlterRoleOperation::Set { .. } | AlterRoleOperation::Reset { .. } => {
                return Err(Error::unsupported(
                    "settings of a role (ALTER ROLE … SET) are not supported",
                ));
            }
            _ => {
                return Err(Error::unsupported(
                    "this form of ALTER ROLE is not supported",
                ));
            }
        }
        access.put_role(role);
        Ok(())
    })?;
    Ok(Summary::tag("ALTER ROLE"))
}

/// The first superuser must stay one, because somebody must be able to grant privileges.
fn keep_a_superuser(access: &Access, changed: &RoleDef) -> Result<()> {
    if changed.id == BOOTSTRAP && !changed.superuser && access.is_superuser(BOOTSTRAP) {
        return Err(Error::invalid(
            SqlState::FEATURE_NOT_SUPPORTED,
            "permission denied to alter role",
        )
        .with_detail("The bootstrap user must be superuser."));
    }
    Ok(())
}

/// Executes DROP ROLE.
pub fn drop(context: &StatementContext, list: &[ObjectName], if_exists: bool) -> Result<Summary> {
    change(context, &mut |catalog| {
        for name in list {
            drop_one(context, catalog, &names::single(name)?, if_exists)?;
        }
        Ok(())
    })?;
    Ok(Summary::tag("DROP ROLE"))
}

fn drop_one(
    context: &StatementContext,
    catalog: &mut Catalog,
    name: &str,
    if_exists: bool,
) -> Result<()> {
    let power = Power::of(context, &catalog.access)?;
    if !power.create_role {
        return Err(denied("permission denied to drop role"));
    }
    let Some(id) = find(&catalog.access, name) else {
        return context.skip(if_exists, undefined_role(name));
    };
    if catalog.access.is_superuser(id) && !power.superuser {
        return Err(denied("must be superuser to drop superusers"));
    }
    if id == power.user || id == identity(context)?.session_user.role {
        let which = if id == power.user {
            "current"
        } else {
            "session"
        };
        return Err(Error::invalid(
            SqlState::OBJECT_IN_USE,
            format!("{which} user cannot be dropped"),
        ));
    }
    let depends = |what: String| {
        let message = if id == BOOTSTRAP {
            format!("cannot drop role {name} because it is required by the database system")
        } else {
            format!("role \"{name}\" cannot be dropped because some objects depend on it")
        };
        Error::invalid(SqlState::DEPENDENT_OBJECTS_STILL_EXIST, message).with_detail(what)
    };
    if id == BOOTSTRAP {
        return Err(depends("It is the first superuser.".to_string()));
    }
    if let Some(object) = catalog.access.owned_by(id).next() {
        return Err(depends(format!("owner of {}", shown(catalog, object))));
    }
    if let Some(grant) = catalog.access.grants.iter().find(|g| g.grantee == id) {
        return Err(depends(format!(
            "privileges for {}",
            shown(catalog, &grant.object)
        )));
    }
    catalog.access_mut().remove_role(id);
    Ok(())
}

fn shown(catalog: &Catalog, object: &Object) -> String {
    match object {
        Object::Table(id) => match catalog.tables.get(id) {
            Some(table) => format!("table {}", table.name),
            None => "a table".to_string(),
        },
        Object::View(_, name) => format!("view {name}"),
        Object::Schema(name) => format!("schema {name}"),
    }
}
