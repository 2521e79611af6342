//! GRANT, REVOKE, and ALTER TABLE … OWNER TO.

use super::check::object_named;
use super::statements::{
    add_membership, find, identity, require, require_admin_of, undefined_role,
};
use crate::backends::acting::denied;
use crate::parse::names;
use crate::planning::context::StatementContext;
use crate::values::summary::Summary;
use datafusion::sql::sqlparser::ast::{
    self, Action, GrantObjects, Grantee, GranteeName, GranteesType, Owner, Privileges as Written,
};
use std::sync::Arc;
use strandline_base::{Error, Result, SqlState};
use strandline_engine::access::{Access, EVERYBODY, Object, Privileges, RoleId};

/// An object with its kind and name in messages.
struct Named {
    object: Object,
    kind: &'static str,
    name: String,
}

/// Executes GRANT.
pub fn grant(context: &StatementContext, grant: &ast::Grant) -> Result<Summary> {
    let Some(objects) = &grant.objects else {
        membership(context, &grant.privileges, &grant.grantees, true)?;
        return Ok(Summary::tag("GRANT ROLE"));
    };
    let grantable = grant.with_grant_option;
    let change = |wanted: Privileges| {
        move |entry: &mut strandline_engine::access::Grant| {
            entry.privileges = entry.privileges.with(wanted);
            if grantable {
                entry.grantable = entry.grantable.with(wanted);
            }
        }
    };
    on_objects(
        context,
        objects,
        &grant.privileges,
        &grant.grantees,
        &change,
    )?;
    Ok(Summary::tag("GRANT"))
}

/// Executes REVOKE.
pub fn revoke(context: &StatementContext, revoke: &ast::Revoke) -> Result<Summary> {
    let Some(objects) = &revoke.objects else {
        membership(context, &revoke.privileges, &revoke.grantees, false)?;
        return Ok(Summary::tag("REVOKE ROLE"));
    };
    let change = |wanted: Privileges| {
        move |entry: &mut strandline_engine::access::Grant| {
            entry.privileges = entry.privileges.without(wanted);
            entry.grantable = entry.grantable.without(wanted);
        }
    };
    on_objects(
        context,
        objects,
        &revoke.privileges,
        &revoke.grantees,
        &change,
    )?;
    Ok(Summary::tag("REVOKE"))
}

fn on_objects<F: FnOnce(&mut strandline_engine::access::Grant)>(
    context: &StatementContext,
    objects: &GrantObjects,
    written: &Written,
    grantees: &[Grantee],
    change: &dyn Fn(Privileges) -> F,
) -> Result<()> {
    let objects = objects_of(context, objects)?;
    let user = identity(context)?.current_user.role;
    let transaction = context.statement.transaction();
    transaction.change_catalog(&mut |catalog| {
        let access = catalog.access_mut();
        let grantees = grantees
            .iter()
            .map(|grantee| role_of(context, access, grantee))
            .collect::<Result<Vec<RoleId>>>()?;
        for named in &objects {
            let wanted = privileges_on(written, named)?;
            require_grantable(access, user, named, wanted)?;
            for grantee in &grantees {
                access.change_grant(&named.object, *grantee, change(wanted));
            }
        }
        Ok(())
    })
}

/// Owners may grant all privileges, other roles those that they have with grant option.
fn require_grantable(
    access: &Access,
    user: RoleId,
    named: &Named,
    wanted: Privileges,
) -> Result<()> {
    if access.owns(user, &named.object) {
        return Ok(());
    }
    let powers = access.powers(user);
    let grantable = access
        .granted(&named.object)
        .filter(|grant| powers.contains(&grant.grantee))
        .fold(Privileges::NONE, |all, grant| all.with(grant.grantable));
    match grantable.contains(wanted) {
        true => Ok(()),
        false => Err(denied(named.kind, &named.name)),
    }
}

fn objects_of(context: &StatementContext, objects: &GrantObjects) -> Result<Vec<Named>> {
    let relation = |name: &ast::ObjectName| {
        let (object, kind, _, name) = object_named(context, name)?;
        Ok(Named { object, kind, name })
    };
    match objects {
        GrantObjects::Tables(names) | GrantObjects::Views(names) => {
            names.iter().map(relation).collect()
        }
        GrantObjects::Schemas(names) => names.iter().map(|name| schema(context, name)).collect(),
        GrantObjects::AllTablesInSchema { schemas } => {
            let mut all = Vec::new();
            for name in schemas {
                let schema = schema(context, name)?.name;
                let catalog = context.statement.transaction().catalog();
                let tables = catalog.tables.values().filter(|t| t.schema == schema);
                all.extend(tables.map(|table| Named {
                    object: Object::Table(table.id),
                    kind: "table",
                    name: table.name.clone(),
                }));
                let views = catalog.views.iter().filter(|v| v.schema == schema);
                all.extend(views.map(|view| Named {
                    object: Object::View(view.schema.clone(), view.name.clone()),
                    kind: "view",
                    name: view.name.clone(),
                }));
            }
            Ok(all)
        }
        other => Err(
            Error::unsupported(format!("privileges on {other} are not supported"))
                .with_hint("There are privileges on tables, views and schemas."),
        ),
    }
}

fn schema(context: &StatementContext, name: &ast::ObjectName) -> Result<Named> {
    let name = names::single(name)?;
    let catalog = context.statement.transaction().catalog();
    if !catalog.schemas.contains_key(&name) {
        return Err(names::undefined_schema(&name));
    }
    Ok(Named {
        object: Object::Schema(name.clone()),
        kind: "schema",
        name,
    })
}

/// The given privileges; 0LP01 for privileges that the object's kind does not have.
fn privileges_on(written: &Written, named: &Named) -> Result<Privileges> {
    let all = match &named.object {
        Object::Schema(_) => Privileges::ALL_ON_SCHEMA,
        _ => Privileges::ALL_ON_TABLE,
    };
    let Written::Actions(actions) = written else {
        return Ok(all);
    };
    let mut wanted = Privileges::NONE;
    for action in actions {
        let privilege = privilege(action)?;
        if !all.contains(privilege) {
            return Err(Error::invalid(
                SqlState("0LP01"),
                format!("invalid privilege type {action} for {}", named.kind),
            ));
        }
        wanted = wanted.with(privilege);
    }
    Ok(wanted)
}

fn privilege(action: &Action) -> Result<Privileges> {
    Ok(match action {
        Action::Select { columns: None } => Privileges::SELECT,
        Action::Insert { columns: None } => Privileges::INSERT,
        Action::Update { columns: None } => Privileges::UPDATE,
        Action::References { columns: None } => Privileges::REFERENCES,
        Action::Delete => Privileges::DELETE,
        Action::Truncate => Privileges::TRUNCATE,
        Action::Trigger => Privileges::TRIGGER,
        Action::Usage => Privileges::USAGE,
        Action::Create { obj_type: None } => Privileges::CREATE,
        Action::Select { .. }
        | Action::Insert { .. }
        | Action::Update { .. }
        | Action::References { .. } => {
            return Err(Error::unsupported(
                "privileges on columns are not supported",
            ));
        }
        other => {
            return Err(Error::invalid(
                SqlState::SYNTAX_ERROR,
                format!("unrecognized privilege type \"{other}\""),
            ));
        }
    })
}

fn role_of(context: &StatementContext, access: &Access, grantee: &Grantee) -> Result<RoleId> {
    let name = match (&grantee.grantee_type, &grantee.name) {
        (GranteesType::Public, _) => return Ok(EVERYBODY),
        (_, Some(GranteeName::ObjectName(name))) => names::single(name)?,
        _ => {
            return Err(Error::unsupported(format!(
                "grantee {grantee} is not supported"
            )));
        }
    };
    match name.as_str() {
        "public" => Ok(EVERYBODY),
        "current_user" | "current_role" => Ok(identity(context)?.current_user.role),
        "session_user" => Ok(identity(context)?.session_user.role),
        other => find(access, other).ok_or_else(|| undefined_role(other)),
    }
}

/// GRANT group TO member and REVOKE group FROM member.
fn membership(
    context: &StatementContext,
    groups: &Written,
    members: &[Grantee],
    joins: bool,
) -> Result<()> {
    let Written::Actions(groups) = groups else {
        return Err(Error::invalid(
            SqlState::SYNTAX_ERROR,
            "the role's name is missing",
        ));
    };
    let user = identity(context)?.current_user.role;
    context
        .statement
        .transaction()
        .change_catalog(&mut |catalog| {
            let access = catalog.access_mut();
            for group in groups {
                let Action::Role { role } = group else {
                    return Err(Error::invalid(
                        SqlState::SYNTAX_ERROR,
                        format!("{group} needs ON and an object"),
                    ));
                };
                let name = names::single(role)?;
                let group = find(access, &name).ok_or_else(|| undefined_role(&name))?;
                require_admin_of(access, user, group)?;
                for member in members {
                    let member = role_of(context, access, member)?;
                    if joins {
                        add_membership(access, group, member)?;
                    } else if let Some(role) = access.roles.get_mut(&member) {
                        Arc::make_mut(role).member_of.retain(|id| *id != group);
                    }
                }
            }
            Ok(())
        })
}

/// Executes ALTER … OWNER TO.
pub fn give_to(context: &StatementContext, object: &Object, owner: &Owner) -> Result<()> {
    let identity = identity(context)?;
    context
        .statement
        .transaction()
        .change_catalog(&mut |catalog| {
            let access = catalog.access_mut();
            let owner = match owner {
                Owner::Ident(name) => require(access, name)?,
                Owner::CurrentRole | Owner::CurrentUser => identity.current_user.role,
                Owner::SessionUser => identity.session_user.role,
            };
            access.set_owner(object.clone(), owner);
            Ok(())
        })
}
