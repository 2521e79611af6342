//! Roles and their privileges on objects: the access control part of the catalog.
//!
//! * Roles are users and groups. A role's password is stored only as a SCRAM verifier.
//! * An object's owner has all privileges on it and grants privileges to other roles. An object
//!   without an entry here belongs to the [`BOOTSTRAP`] role; in databases without roles all
//!   objects do.
//! * [`EVERYBODY`] stands for PUBLIC. A role has the privileges of the roles that it is a member
//!   of.
//!
//! Tables are identified by id, which they keep for life; schemas and views by name, which cannot
//! change. A change that drops an object removes its owner and grants.

use crate::catalog::Catalog;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use strandline_base::TableId;

/// Identifies a role for life.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct RoleId(pub u32);

/// PUBLIC: every role.
pub const EVERYBODY: RoleId = RoleId(0);
/// The first superuser. It exists without a name before any role is created.
pub const BOOTSTRAP: RoleId = RoleId(10);
/// The name of [`BOOTSTRAP`] until it gets another.
pub const BOOTSTRAP_NAME: &str = "strandline";
/// The first id of other roles; lower ids belong to the system.
const FIRST_ROLE: u32 = 16_384;

/// A user or a group.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RoleDef {
    /// stable for life
    pub id: RoleId,
    /// role name
    pub name: String,
    /// has all rights
    pub superuser: bool,
    /// may connect
    pub login: bool,
    /// may create, change and drop roles other than superusers
    pub create_role: bool,
    /// only displayed, since there is one database
    pub create_database: bool,
    /// uses the privileges of the roles that it is a member of
    pub inherit: bool,
    /// the maximum number of its connections; None: unlimited
    pub connection_limit: Option<u32>,
    /// when its password expires, microseconds since the epoch
    pub valid_until_us: Option<i64>,
    /// `SCRAM-SHA-256$iterations:salt$stored key:server key`; None: no password is valid
    pub verifier: Option<String>,
    /// the roles that it is a member of
    pub member_of: Vec<RoleId>,
    /// COMMENT ON ROLE
    pub comment: Option<String>,
}

impl RoleDef {
    /// Whether the role has a password that is valid at `now_us`.
    pub fn has_password(&self, now_us: u64) -> bool {
        let ended = |until: i64| u64::try_from(until).map_or(true, |until| until < now_us);
        self.verifier.is_some() && !self.valid_until_us.is_some_and(ended)
    }
}

/// An object of privileges.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Object {
    /// a table
    Table(TableId),
    /// a view, by schema and name
    View(String, String),
    /// a schema, by name
    Schema(String),
}

/// A set of privileges, written as PostgreSQL's letters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Privileges(u16);

/// Each privilege with its letter and its name.
const PRIVILEGES: [(Privileges, char, &str); 9] = [
    (Privileges::INSERT, 'a', "INSERT"),
    (Privileges::SELECT, 'r', "SELECT"),
    (Privileges::UPDATE, 'w', "UPDATE"),
    (Privileges::DELETE, 'd', "DELETE"),
    (Privileges::TRUNCATE, 'D', "TRUNCATE"),
    (Privileges::REFERENCES, 'x', "REFERENCES"),
    (Privileges::TRIGGER, 't', "TRIGGER"),
    (Privileges::USAGE, 'U', "USAGE"),
    (Privileges::CREATE, 'C', "CREATE"),
];

impl Privileges {
    /// none
    pub const NONE: Self = Self(0);
    /// read rows
    pub const SELECT: Self = Self(1);
    /// add rows
    pub const INSERT: Self = Self(2);
    /// change rows, lock rows
    pub const UPDATE: Self = Self(4);
    /// remove rows
    pub const DELETE: Self = Self(8);
    /// remove all rows at once
    pub const TRUNCATE: Self = Self(16);
    /// create foreign keys that reference a table
    pub const REFERENCES: Self = Self(32);
    /// only displayed, since there are no triggers
    pub const TRIGGER: Self = Self(64);
    /// look names up in a schema
    pub const USAGE: Self = Self(128);
    /// create objects in a schema
    pub const CREATE: Self = Self(256);
    /// all privileges on single rows: required for a handle for point operations
    pub const ALL_ON_ROWS: Self = Self(1 | 2 | 4 | 8);
    /// all privileges on a table or view
    pub const ALL_ON_TABLE: Self = Self(127);
    /// all privileges on a schema
    pub const ALL_ON_SCHEMA: Self = Self(128 | 256);

    /// The privilege called `name`, case-insensitive.
    pub fn named(name: &str) -> Option<Self> {
        let found = PRIVILEGES
            .iter()
            .find(|(_, _, n)| n.eq_ignore_ascii_case(name));
        found.map(|(privilege, ..)| *privilege)
    }
    /// The union of both sets.
    #[must_use]
    pub fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
    /// This set without `other`.
    #[must_use]
    pub fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }
    /// The privileges in both sets.
    #[must_use]
    pub fn common(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }
    /// Whether all of `other` is in this set.
    pub fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
    /// Whether the set is empty.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }
    /// The names of the privileges.
    pub fn names(self) -> Vec<&'static str> {
        let present = PRIVILEGES.iter().filter(|(p, ..)| self.contains(*p));
        present.map(|(_, _, name)| *name).collect()
    }
    /// PostgreSQL's letters; a letter whose privilege is in `starred` is followed by `*`.
    pub fn letters(self, starred: Self) -> String {
        let mut text = String::new();
        for (privilege, letter, _) in PRIVILEGES {
            if self.contains(privilege) {
                text.push(letter);
                if starred.contains(privilege) {
                    text.push('*');
                }
            }
        }
        text
    }
}

impl From<Privileges> for String {
    fn from(privileges: Privileges) -> Self {
        privileges.letters(Privileges::NONE)
    }
}

impl TryFrom<String> for Privileges {
    type Error = UnknownPrivilege;

    fn try_from(letters: String) -> Result<Self, UnknownPrivilege> {
        letters.chars().try_fold(Self::NONE, |set, letter| {
            let known = PRIVILEGES.iter().find(|(_, l, _)| *l == letter);
            known
                .map(|(privilege, ..)| set.with(*privilege))
                .ok_or(UnknownPrivilege(letter))
        })
    }
}

/// The error for a stored letter that is not a privilege's.
#[derive(Debug)]
pub struct UnknownPrivilege(char);

impl fmt::Display for UnknownPrivilege {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "'{}' is no privilege", self.0)
    }
}

/// One role's privileges on one object.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Grant {
    /// the object
    pub object: Object,
    /// the role that has the privileges
    pub grantee: RoleId,
    /// the granted privileges
    pub privileges: Privileges,
    /// the granted privileges with GRANT OPTION
    pub grantable: Privileges,
}

/// All roles, owners and grants.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Access {
    /// all named roles
    pub roles: BTreeMap<RoleId, Arc<RoleDef>>,
    /// smaller ids have been used; 0: none was
    pub(crate) next_role: u32,
    /// owners other than [`BOOTSTRAP`], as a list so that JSON keys stay plain
    pub(crate) owners: Vec<(Object, RoleId)>,
    /// at most one entry per object and grantee
    pub grants: Vec<Grant>,
}

impl Access {
    /// Allocates a role id.
    pub fn new_role_id(&mut self) -> RoleId {
        let id = self.next_role.max(FIRST_ROLE);
        // A change that uses the last number is refused; see `Catalog::check_numbers`.
        self.next_role = id.saturating_add(1);
        RoleId(id)
    }
    /// The role called `name`.
    pub fn role(&self, name: &str) -> Option<&Arc<RoleDef>> {
        self.roles.values().find(|role| role.name == name)
    }
    /// The name of a role; `unknown (OID=…)` for a dropped one.
    pub fn role_name(&self, id: RoleId) -> String {
        match self.roles.get(&id) {
            Some(role) => role.name.clone(),
            None if id == BOOTSTRAP => BOOTSTRAP_NAME.to_string(),
            None => format!("unknown (OID={})", id.0),
        }
    }
    /// Adds or replaces a role.
    pub fn put_role(&mut self, role: RoleDef) {
        self.roles.insert(role.id, Arc::new(role));
    }
    /// Whether `role` is a superuser.
    pub fn is_superuser(&self, role: RoleId) -> bool {
        match self.roles.get(&role) {
            Some(role) => role.superuser,
            None => role == BOOTSTRAP,
        }
    }
    /// Whether there is a role that may log in.
    pub fn has_users(&self) -> bool {
        self.roles.values().any(|role| role.login)
    }
    /// A superuser who can log in at `now_us` with a password.
    pub fn administrator(&self, now_us: u64) -> Option<&Arc<RoleDef>> {
        let mut roles = self.roles.values();
        roles.find(|role| role.superuser && role.login && role.has_password(now_us))
    }
    /// The object's owner; [`BOOTSTRAP`] if none is recorded.
    pub fn owner(&self, object: &Object) -> RoleId {
        let found = self.owners.iter().find(|(owned, _)| owned == object);
        found.map_or(BOOTSTRAP, |(_, owner)| *owner)
    }
    /// Makes `owner` the object's owner.
    pub fn set_owner(&mut self, object: Object, owner: RoleId) {
        self.owners.retain(|(owned, _)| *owned != object);
        if owner != BOOTSTRAP {
            self.owners.push((object, owner));
        }
    }
    /// The objects that `role` owns.
    pub fn owned_by(&self, role: RoleId) -> impl Iterator<Item = &Object> {
        let owned = self.owners.iter().filter(move |(_, owner)| *owner == role);
        owned.map(|(object, _)| object)
    }
    /// The role and all roles whose privileges it has, through any number of memberships.
    pub fn powers(&self, role: RoleId) -> BTreeSet<RoleId> {
        self.reachable(role, |role| role.inherit)
    }
    /// The role and all roles that it is a member of, with or without their privileges.
    pub fn memberships(&self, role: RoleId) -> BTreeSet<RoleId> {
        self.reachable(role, |_| true)
    }
    fn reachable(&self, role: RoleId, follow: impl Fn(&RoleDef) -> bool) -> BTreeSet<RoleId> {
        let mut found = BTreeSet::from([role]);
        let mut waiting = vec![role];
        while let Some(next) = waiting.pop() {
            let Some(role) = self.roles.get(&next).filter(|role| follow(role)) else {
                continue;
            };
            let new = role.member_of.iter().copied();
            waiting.extend(new.filter(|id| found.insert(*id)));
        }
        found
    }
    /// Whether `role` has the rights of the owner of `object`.
    pub fn owns(&self, role: RoleId, object: &Object) -> bool {
        self.is_superuser(role) || self.powers(role).contains(&self.owner(object))
    }
    /// The privileges of `role` on `object`. Superusers and owners have all.
    pub fn privileges(&self, role: RoleId, object: &Object) -> Privileges {
        if self.owns(role, object) {
            return Privileges::ALL_ON_TABLE.with(Privileges::ALL_ON_SCHEMA);
        }
        let powers = self.powers(role);
        let everybody = self.granted(object).find(|g| g.grantee == EVERYBODY);
        let start = everybody.map_or(initial(object), |grant| grant.privileges);
        self.granted(object)
            .filter(|g| powers.contains(&g.grantee))
            .fold(start, |all, grant| all.with(grant.privileges))
    }
    /// The grants on `object`.
    pub fn granted(&self, object: &Object) -> impl Iterator<Item = &Grant> {
        self.grants.iter().filter(move |g| g.object == *object)
    }
    /// Changes the grant of `object` to `grantee` by `change`. An empty grant is removed, unless it
    /// revokes an initial privilege of PUBLIC.
    pub fn change_grant(
        &mut self,
        object: &Object,
        grantee: RoleId,
        change: impl FnOnce(&mut Grant),
    ) {
        let at = self
            .grants
            .iter()
            .position(|g| g.object == *object && g.grantee == grantee);
        let before = match grantee {
            EVERYBODY => initial(object),
            _ => Privileges::NONE,
        };
        let at = at.unwrap_or_else(|| {
            self.grants.push(Grant {
                object: object.clone(),
                grantee,
                privileges: before,
                grantable: Privileges::NONE,
            });
            self.grants.len() - 1
        });
        change(&mut self.grants[at]);
        if self.grants[at].privileges.is_empty() && before.is_empty() {
            self.grants.remove(at);
        }
    }
    /// Removes owner and grants of a dropped object.
    fn forget(&mut self, object: &Object) {
        self.owners.retain(|(owned, _)| owned != object);
        self.grants.retain(|grant| grant.object != *object);
    }
    /// Removes a role with its grants and memberships.
    pub fn remove_role(&mut self, id: RoleId) {
        self.roles.remove(&id);
        self.grants.retain(|grant| grant.grantee != id);
        for role in self.roles.values_mut() {
            if role.member_of.contains(&id) {
                Arc::make_mut(role).member_of.retain(|group| *group != id);
            }
        }
    }
}

/// The privileges of PUBLIC on an object before any grant.
fn initial(object: &Object) -> Privileges {
    match object {
        Object::Schema(name) if name == "public" => Privileges::USAGE,
        _ => Privileges::NONE,
    }
}

impl Catalog {
    /// The roles and grants, for changes.
    pub fn access_mut(&mut self) -> &mut Access {
        Arc::make_mut(&mut self.access)
    }
    /// Whether the object exists.
    fn has(&self, object: &Object) -> bool {
        match object {
            Object::Table(id) => self.tables.contains_key(id),
            Object::View(schema, name) => self.view(schema, name).is_some(),
            Object::Schema(name) => self.schemas.contains_key(name),
        }
    }
    /// Removes owners and grants of dropped objects, so that later objects of the same name do not
    /// inherit them.
    pub(crate) fn forget_dropped(&mut self) {
        let access = &self.access;
        let owned = access.owners.iter().map(|(object, _)| object);
        let granted = access.grants.iter().map(|grant| &grant.object);
        let gone: Vec<Object> = owned
            .chain(granted)
            .filter(|object| !self.has(object))
            .cloned()
            .collect();
        for object in &gone {
            self.access_mut().forget(object);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use strandline_base::SqlState;

    fn role(access: &mut Access, name: &str, member_of: &[RoleId]) -> RoleId {
        let id = access.new_role_id();
        access.put_role(RoleDef {
            id,
            name: name.to_string(),
            superuser: false,
            login: true,
            create_role: false,
            create_database: false,
            inherit: true,
            connection_limit: None,
            valid_until_us: None,
            verifier: None,
            member_of: member_of.to_vec(),
            comment: None,
        });
        id
    }

    #[test]
    fn numbers_of_roles_end_with_an_error() {
        let mut catalog = Catalog::default();
        let access = catalog.access_mut();
        access.next_role = u32::MAX - 1;
        assert_eq!(access.new_role_id(), RoleId(u32::MAX - 1));
        let refused = catalog.check_numbers().expect_err("was the last one");
        assert_eq!(refused.sqlstate(), SqlState::PROGRAM_LIMIT_EXCEEDED);
    }

    #[test]
    fn privileges_come_through_memberships_even_in_a_circle() {
        let mut access = Access::default();
        let readers = role(&mut access, "readers", &[]);
        let staff = role(&mut access, "staff", &[readers]);
        let ann = role(&mut access, "ann", &[staff]);
        let role = access.roles.get_mut(&readers).expect("made above");
        Arc::make_mut(role).member_of.push(ann);
        let table = Object::Table(TableId(1));
        access.change_grant(&table, readers, |g| g.privileges = Privileges::SELECT);
        assert_eq!(access.privileges(ann, &table), Privileges::SELECT);
        access.remove_role(readers);
        assert_eq!(access.privileges(ann, &table), Privileges::NONE);
    }

    #[test]
    fn privileges_are_stored_as_letters() {
        let set = Privileges::SELECT.with(Privileges::USAGE);
        let json = serde_json::to_string(&set).expect("json");
        assert_eq!(json, "\"rU\"");
        assert_eq!(serde_json::from_str::<Privileges>(&json).expect("set"), set);
        assert!(serde_json::from_str::<Privileges>("\"r?\"").is_err());
    }

    #[test]
    fn a_catalog_from_before_roles_is_read() {
        let old = r#"{"schemas":{"public":null},"tables":{},"views":[],
            "next_table":1,"next_storage":1}"#;
        let catalog: Catalog = serde_json::from_str(old).expect("read");
        assert_eq!(*catalog.access, Access::default());
        let newer = old.replacen('{', "{\"version\":99,", 1);
        assert!(serde_json::from_str::<Catalog>(&newer).is_err());
    }
}
