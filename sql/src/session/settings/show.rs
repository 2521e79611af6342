//! SHOW, and the parameters' values in system tables.

use super::origin::Origin;
use super::parameters::{Access, Kind, PARAMETERS, Parameter, find};
use super::{ForeignParameter, SettingsVersion, ShownParameter, unknown};
use crate::backends::activity::Setting;
use crate::session::Session;
use crate::values::summary::{Summary, text_result};
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::sql::sqlparser::ast::Ident;
use strandline_base::Result;

impl Session {
    /// The result columns of SHOW.
    pub(in crate::session) fn shown_columns(
        &self,
        variable: &[Ident],
    ) -> Result<Option<SchemaRef>> {
        let shown = self.show(variable)?;
        Ok(shown.result().map(|result| result.schema().clone()))
    }

    pub(in crate::session) fn show(&self, variable: &[Ident]) -> Result<Summary> {
        let words: Vec<String> = variable.iter().map(|i| i.value.to_lowercase()).collect();
        let name = match words
            .iter()
            .map(String::as_str)
            .collect::<Vec<_>>()
            .as_slice()
        {
            ["all"] => return Ok(self.show_all()),
            ["time", "zone"] => "timezone".to_string(),
            ["transaction", "isolation", "level"] => "transaction_isolation".to_string(),
            other => other.join("."),
        };
        let value = self.value_of(&name).ok_or_else(|| unknown(&name))?;
        let shown = find(&name).map_or(name.as_str(), |parameter| parameter.name);
        Ok(text_result("SHOW", &[shown], vec![vec![value]]))
    }

    fn show_all(&self) -> Summary {
        let rows = self.parameters().into_iter().map(|p| {
            let origin = p.origin.to_string();
            vec![p.name, p.value, p.description, origin]
        });
        let columns = ["name", "setting", "description", "origin"];
        text_result("SHOW", &columns, rows.collect())
    }

    /// Publishes the settings to system tables.
    pub(in crate::session) fn report_settings(&self) {
        let parameters = self.parameters().into_iter();
        let all = parameters.map(|parameter| Setting {
            changeable: parameter.context == "user",
            name: parameter.name,
            value: parameter.value,
            description: parameter.description,
        });
        let custom = self.settings.custom.iter();
        let all = all.chain(custom.map(|(name, value)| Setting {
            changeable: true,
            name: name.clone(),
            value: value.clone(),
            description: String::new(),
        }));
        let backend = self.registered.backend();
        backend.set_settings(all.collect(), &self.settings.application_name);
    }

    /// All parameters by name, including those of the program around the database.
    pub(crate) fn parameters(&self) -> Vec<ShownParameter> {
        let own = PARAMETERS.iter().map(|parameter| ShownParameter {
            name: parameter.name.to_string(),
            value: self.value_of_parameter(parameter),
            description: parameter.description.to_string(),
            kind: parameter.kind,
            context: match parameter.access {
                Access::Open { .. } => "postmaster",
                Access::Cache { .. } => "sighup",
                Access::Internal(_) => "internal",
                _ => "user",
            },
            origin: self.origin_of(parameter),
        });
        let foreign = self.shared.foreign_parameters.iter();
        let foreign = foreign.map(|parameter| ShownParameter {
            name: parameter.name.clone(),
            value: parameter.value.clone(),
            description: parameter.description.clone(),
            kind: Kind::Text,
            context: "postmaster",
            origin: parameter.origin.clone(),
        });
        let mut all: Vec<ShownParameter> = own.chain(foreign).collect();
        all.sort_by_key(|parameter| parameter.name.to_lowercase());
        all
    }

    fn origin_of(&self, parameter: &Parameter) -> Origin {
        match self.settings.origins.get(parameter.name) {
            Some(origin) => origin.clone(),
            None => self.shared.origins.of(parameter.name),
        }
    }

    /// The version of all present settings.
    pub(crate) fn settings_version(&self) -> SettingsVersion {
        SettingsVersion(self.settings.clone(), self.template.clone())
    }

    /// The value that SHOW prints for `name`; None if there is no such parameter.
    pub(crate) fn value_of(&self, name: &str) -> Option<String> {
        if let Some(parameter) = find(name) {
            return Some(self.value_of_parameter(parameter));
        }
        let foreign = self.foreign(name).map(|parameter| parameter.value.clone());
        foreign.or_else(|| self.settings.custom.get(name).cloned())
    }

    /// The parameter of the program around the database with this name.
    pub(in crate::session) fn foreign(&self, name: &str) -> Option<&ForeignParameter> {
        let mut foreign = self.shared.foreign_parameters.iter();
        foreign.find(|parameter| parameter.name.eq_ignore_ascii_case(name))
    }

    fn value_of_parameter(&self, parameter: &Parameter) -> String {
        match &parameter.access {
            Access::Session { show, .. } => show(&self.settings),
            Access::Only { shown, .. } => (*shown).to_string(),
            Access::Kept { default, .. } => match self.settings.kept.get(parameter.name) {
                Some(value) => value.clone(),
                None => (*default).to_string(),
            },
            Access::Open { show, .. } => show(&self.shared.opened),
            Access::Cache { show, .. } => show(&self.shared.db.cache_settings()),
            Access::Internal(show) => show(self),
        }
    }
}
