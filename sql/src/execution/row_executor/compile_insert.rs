//! INSERT … VALUES, also with ON CONFLICT, as compiled statements.

use super::column_defaults::{default_of, is_default};
use super::compile::of;
use super::program::{Conflict, Insert, Operation, RowStatement};
use super::scope::{Compiler, EXCLUDED, Scope};
use super::search::place;
use super::source::Source;
use super::value::is_key_type;
use crate::execution::dml;
use crate::parse::long_values;
use crate::parse::names;
use datafusion::sql::sqlparser::ast::{self, Expr};
use strandline_engine::PointTable;
use strandline_engine::catalog::TableDef;

/// How many rows an INSERT of this path has at most.
const MAX_ROWS: usize = 256;

impl Compiler<'_> {
    pub(super) fn insert(&self, insert: &ast::Insert) -> Option<RowStatement> {
        let ast::TableObject::TableName(name) = &insert.table else {
            return None;
        };
        let is_plain = insert.into
            && insert.optimizer_hints.is_empty()
            && insert.or.is_none()
            && !insert.ignore
            && !insert.overwrite
            && insert.assignments.is_empty()
            && insert.partitioned.is_none()
            && insert.after_columns.is_empty()
            && !insert.has_table_keyword
            && insert.output.is_none()
            && !insert.replace_into
            && insert.priority.is_none()
            && insert.insert_alias.is_none()
            && insert.settings.is_none()
            && insert.format_clause.is_none()
            && insert.multi_table_insert_type.is_none()
            && insert.multi_table_into_clauses.is_empty();
        let table = self.table(name).filter(|_| is_plain)?;
        let alias = insert.table_alias.as_ref().map(|a| names::fold(&a.alias));
        let scope = Scope {
            table,
            alias: alias.unwrap_or_else(|| table.name.clone()),
            from: Vec::new(),
            proposes: false,
        };
        let given = long_values::plain_rows(insert.source.as_deref()?)?;
        if table.columns.is_empty() || given.is_empty() || given.len() > MAX_ROWS {
            return None;
        }
        let columns = match insert.columns.as_slice() {
            [] => (0..given[0].content.len().min(table.columns.len())).collect(),
            listed => positions(&scope, listed)?,
        };
        let mut cells = Vec::new();
        let rows = given
            .iter()
            .map(|row| self.row(table, &columns, &row.content, &mut cells))
            .collect::<Option<Vec<_>>>()?;
        let computed = match cells.is_empty() {
            true => None,
            false => Some(self.computed_values(&scope, cells, &mut |position| position)?),
        };
        let inserted = Scope {
            from: vec![dml::from_as(name, &scope.alias)],
            ..scope
        };
        let returning = self.returning(&inserted, insert.returning.as_deref())?;
        let existing = inserted.from.iter().cloned();
        let scope = Scope {
            from: existing.chain([dml::from_as(name, EXCLUDED)]).collect(),
            proposes: true,
            ..inserted
        };
        let conflict = match &insert.on {
            None => None,
            Some(on) => Some(self.conflict(&scope, on, returning.is_some())?),
        };
        let operation = Operation::Insert(Insert {
            rows,
            computed,
            conflict,
        });
        Some(of(&scope, operation, returning))
    }

    /// The values of all columns of a row whose `columns` are given as `cells`; adds expressions to
    /// `computed`, with their columns.
    fn row(
        &self,
        table: &TableDef,
        columns: &[usize],
        cells: &[Expr],
        computed: &mut Vec<(Expr, usize)>,
    ) -> Option<Vec<Source>> {
        if cells.len() != columns.len() {
            return None;
        }
        let mut row: Vec<Option<Source>> = vec![None; table.columns.len()];
        for (position, cell) in columns.iter().zip(cells) {
            if is_default(cell) {
                continue;
            }
            let identity = table.columns[*position].identity.as_ref();
            if identity.is_some_and(|identity| identity.always) {
                return None;
            }
            row[*position] = Some(self.cell(cell.clone(), *position, computed));
        }
        for (position, (source, column)) in row.iter_mut().zip(&table.columns).enumerate() {
            if source.is_some() {
                continue;
            }
            *source = Some(match column.identity {
                Some(_) => Source::Identity,
                None => self.cell(default_of(column)?, position, computed),
            });
        }
        row.into_iter().collect()
    }

    fn cell(&self, cell: Expr, position: usize, computed: &mut Vec<(Expr, usize)>) -> Source {
        self.constant(&cell).unwrap_or_else(|| {
            computed.push((cell, position));
            Source::Computed(computed.len() - 1)
        })
    }

    /// `whole`: the row that an update makes is given back.
    fn conflict(&self, scope: &Scope<'_>, on: &ast::OnInsert, whole: bool) -> Option<Conflict> {
        let ast::OnInsert::OnConflict(on) = on else {
            return None;
        };
        let table = scope.table;
        if scope.alias == EXCLUDED {
            return None;
        }
        let index = match &on.conflict_target {
            None if table.indexes.iter().any(|index| index.unique) => return None,
            None => (table.keys.len() == 1).then_some(0)?,
            Some(ast::ConflictTarget::Columns(named)) => {
                let mut ids = Vec::with_capacity(named.len());
                for name in named {
                    ids.push(table.columns[scope.position(name)?].id);
                }
                let mut fitting = (0..table.keys.len()).filter(|k| {
                    let key = &table.keys[*k].columns;
                    key.len() == ids.len() && key.iter().all(|id| ids.contains(id))
                });
                let index = fitting.next()?;
                fitting.next().is_none().then_some(index)?
            }
            Some(ast::ConflictTarget::OnConstraint(name)) => {
                let name = names::single(name).ok()?;
                table.keys.iter().position(|key| key.name == name)?
            }
        };
        let arbiter = &table.keys[index];
        if arbiter.is_deferrable() || arbiter.nulls_not_distinct {
            return None;
        }
        let update = match &on.action {
            ast::OnConflictAction::DoNothing => None,
            ast::OnConflictAction::DoUpdate(_) if on.conflict_target.is_none() => return None,
            ast::OnConflictAction::DoUpdate(update) => {
                let mut set = self.set_list(scope, &update.assignments, whole)?;
                if self.acts_on_others(scope, Some(&set)) {
                    return None;
                }
                if let Some(condition) = &update.selection {
                    let reads = &mut set.reads;
                    let mut place = |position: usize| place(reads, table.columns[position].id);
                    let condition = std::slice::from_ref(condition);
                    set.condition = Some(self.condition(scope, condition, &mut place)?);
                }
                Some(set)
            }
        };
        let mut reads = update.as_ref().map_or(Vec::new(), |set| set.reads.clone());
        let (mut key, mut places) = (Vec::new(), Vec::new());
        for id in &table.keys[index].columns {
            let position = table.position(*id)?;
            if !is_key_type(table.columns[position].sql_type) {
                return None;
            }
            key.push(position);
            places.push(place(&mut reads, *id));
        }
        Some(Conflict {
            point: PointTable::new(self.db, self.catalog, table, index).ok()?,
            index,
            key,
            update,
            reads,
            places,
        })
    }
}

/// The positions of an INSERT's column list.
fn positions(scope: &Scope<'_>, listed: &[ast::ObjectName]) -> Option<Vec<usize>> {
    let mut positions = Vec::with_capacity(listed.len());
    for name in listed {
        let [ast::ObjectNamePart::Identifier(name)] = name.0.as_slice() else {
            return None;
        };
        let position = scope.position(name)?;
        if positions.contains(&position) {
            return None;
        }
        positions.push(position);
    }
    Some(positions)
}
