//! Indexes and foreign keys for `\d` and `\di`, read from the system catalog.

use super::interpreter::Interpreter;
use crate::session::{Result, Row};

/// The indexes of a table that belong to no constraint.
const SECONDARY: &str = "
    SELECT '\"' || i.relname || '\" ' || CASE WHEN x.indisunique THEN 'UNIQUE, ' ELSE '' END
        || substr(x.definition, strpos(x.definition, ' USING ') + 7)
        || CASE WHEN x.indisvalid THEN '' ELSE ' (being built)' END
    FROM (SELECT *, pg_get_indexdef(indexrelid) AS definition FROM pg_index) x
        JOIN pg_class i ON i.oid = x.indexrelid
        JOIN pg_class t ON t.oid = x.indrelid
        JOIN pg_namespace n ON n.oid = t.relnamespace
    WHERE n.nspname = $1 AND t.relname = $2
        AND x.indexrelid NOT IN (SELECT conindid FROM pg_constraint WHERE contype IN ('p', 'u'))
    ORDER BY i.relname";

const FOREIGN_KEYS: &str = "
    SELECT '\"' || k.conname || '\" ' || pg_get_constraintdef(k.oid)
    FROM pg_constraint k
        JOIN pg_class t ON t.oid = k.conrelid
        JOIN pg_namespace n ON n.oid = t.relnamespace
    WHERE k.contype = 'f' AND n.nspname = $1 AND t.relname = $2
    ORDER BY k.conname";

const REFERENCED_BY: &str = "
    SELECT 'TABLE \"' || c.relname || '\" CONSTRAINT \"' || k.conname || '\" '
        || pg_get_constraintdef(k.oid)
    FROM pg_constraint k
        JOIN pg_class c ON c.oid = k.conrelid
        JOIN pg_class t ON t.oid = k.confrelid
        JOIN pg_namespace n ON n.oid = t.relnamespace
    WHERE k.contype = 'f' AND n.nspname = $1 AND t.relname = $2
    ORDER BY c.relname, k.conname";

const ALL_INDEXES: &str = "
    SELECT schemaname, indexname, tablename, substr(indexdef, strpos(indexdef, ' USING ') + 7)
    FROM pg_indexes WHERE schemaname <> 'pg_catalog'
    ORDER BY schemaname, indexname";

/// The indexes of all schemas: schema, name, table, definition.
pub fn all_indexes(shell: &mut Interpreter) -> Result<Vec<Vec<String>>> {
    let result = shell.connection_mut().query(ALL_INDEXES, ())?;
    let cells = |row: Row<'_>| (0..4).map(|at| row.get(at)).collect();
    result.rows().map(cells).collect()
}

/// The sections of `\d` besides columns and keys. Each has a heading and lines; empty sections are
/// left out.
pub fn of_table(
    shell: &mut Interpreter,
    schema: &str,
    table: &str,
) -> Result<Vec<(&'static str, Vec<String>)>> {
    let mut found = Vec::new();
    for (heading, sql) in [
        ("Indexes:", SECONDARY),
        ("Foreign-key constraints:", FOREIGN_KEYS),
        ("Referenced by:", REFERENCED_BY),
    ] {
        let result = shell.connection_mut().query(sql, (schema, table))?;
        let lines: Vec<String> = result.rows().map(|row| row.get(0)).collect::<Result<_>>()?;
        if !lines.is_empty() {
            found.push((heading, lines));
        }
    }
    Ok(found)
}
