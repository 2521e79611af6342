//! A session's users. The session's template has them, so that a running statement finds them in
//! its DataFusion state at no cost to other statements.

use super::activity::{Backend, Registered, Registry};
use crate::backends::random::RandomSource;
use datafusion::execution::session_state::SessionState;
use std::sync::Arc;
use strandline_base::Result;
use strandline_engine::access::{BOOTSTRAP, RoleId};
use strandline_engine::catalog::Catalog;

/// The role that a session runs as.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    /// the role
    pub role: RoleId,
    /// its name when the session began
    pub name: Arc<str>,
}

impl User {
    /// The identity of an embedding program: the first superuser.
    pub fn embedded(catalog: &Catalog) -> Self {
        Self {
            role: BOOTSTRAP,
            name: catalog.access.role_name(BOOTSTRAP).into(),
        }
    }
}

/// Checks a new value of a setting (None: its default) and returns its shown form; errors as of
/// SET.
pub type CheckSetting = fn(&str, Option<&str>) -> Result<String>;

/// The session's data that its statements use.
#[derive(Debug)]
pub struct Identity {
    /// the user that has connected
    pub session_user: User,
    /// the role that the session acts as
    pub current_user: User,
    /// the session's entry in the registry
    pub backend: Arc<Backend>,
    /// all sessions
    pub registry: Arc<Registry>,
    /// the source of salts
    pub random: Arc<dyn RandomSource>,
    /// checks a change of a setting
    pub check_setting: CheckSetting,
}

impl Identity {
    /// The identity of the session that `state` belongs to.
    pub fn of(state: &SessionState) -> Option<Arc<Self>> {
        state.config().get_extension::<Self>()
    }

    /// `template` for a session that acts as `current_user`.
    pub fn put_into(
        template: &SessionState,
        registered: &Registered,
        random: &Arc<dyn RandomSource>,
        session_user: User,
        current_user: User,
        check_setting: CheckSetting,
    ) -> SessionState {
        let mut state = template.clone();
        state.config_mut().set_extension(Arc::new(Self {
            session_user,
            current_user,
            backend: registered.backend().clone(),
            registry: registered.registry().clone(),
            random: Arc::clone(random),
            check_setting,
        }));
        state
    }
}
