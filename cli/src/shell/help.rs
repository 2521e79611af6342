//! The texts of `\?` and `\h`.

use crate::session::{Error, SqlState};
use std::fmt::Write;

/// The output of `\?`.
pub const META: &str = "\
General
  \\q                   quit (so does Ctrl-D)
  \\? , \\h [STATEMENT]  this list; the syntax of SQL statements
  \\l, \\conninfo        which database this is
Catalog
  \\d                   tables and views
  \\d NAME              columns, keys, indexes, constraints of a table; text of a view
  \\dt, \\dv, \\di, \\dn   tables; views; indexes; schemas
Statements
  ;                    ends a statement, which then runs; Ctrl-C cancels it
  \\g                   run the last statement again
  \\e [FILE]            edit the last statement (or a file) in $EDITOR, then run it
  \\i FILE              run a file
  \\copy …              the same as COPY …
Output
  \\x [on|off|auto]     one line per value; auto: when a table does not fit
  \\format FORMAT       table, csv, json, jsonlines or markdown
  \\null [TEXT]         what NULL looks like
  \\timing [on|off]     show how long statements take
  \\o [FILE]            write results to a file; without FILE back to the terminal
  \\echo TEXT           print a text
The prompt ends in => outside a transaction, =*> inside, =!> after a failure (ROLLBACK ends it).
";

/// Name and syntax of the statements, sorted by name.
const STATEMENTS: &[(&str, &str)] = &[
    (
        "ALTER TABLE",
        "ALTER TABLE [IF EXISTS] name ADD [COLUMN] [IF NOT EXISTS] column type [constraint …]
ALTER TABLE name DROP [COLUMN] [IF EXISTS] column
ALTER TABLE name RENAME [COLUMN] column TO new_name
ALTER TABLE name RENAME TO new_name
ALTER TABLE name ALTER [COLUMN] column {SET | DROP} {NOT NULL | DEFAULT [expression]}
ALTER TABLE name SET (history = 'forever' | '<interval>' | 'none')",
    ),
    (
        "BEGIN",
        "BEGIN [ISOLATION LEVEL {READ COMMITTED | REPEATABLE READ}] [READ ONLY]",
    ),
    (
        "COMMENT",
        "COMMENT ON {TABLE | COLUMN | VIEW | SCHEMA} name IS {'text' | NULL}",
    ),
    ("COMMIT", "COMMIT"),
    (
        "COPY",
        "COPY table [(columns)] FROM 'file'
    [WITH (FORMAT csv | parquet | json, HEADER, DELIMITER ',', NULL '')]
COPY {table [(columns)] | (query)} TO 'file' [WITH (…)]",
    ),
    ("CREATE SCHEMA", "CREATE SCHEMA [IF NOT EXISTS] name"),
    (
        "CREATE TABLE",
        "CREATE TABLE [IF NOT EXISTS] name (
    column type [NOT NULL] [DEFAULT expression] [PRIMARY KEY | UNIQUE] [CHECK (condition)]
        [GENERATED {ALWAYS | BY DEFAULT} AS IDENTITY], …
    [CONSTRAINT name] {PRIMARY KEY | UNIQUE} (columns), CHECK (condition), …)
CREATE TABLE [IF NOT EXISTS] name AS query",
    ),
    (
        "CREATE VIEW",
        "CREATE [OR REPLACE] VIEW name [(columns)] AS query",
    ),
    (
        "DELETE",
        "DELETE FROM table [AS alias] [USING from_item, …] [WHERE condition] [RETURNING …]",
    ),
    (
        "DROP",
        "DROP {TABLE | VIEW | SCHEMA} [IF EXISTS] name, … [CASCADE]",
    ),
    ("EXPLAIN", "EXPLAIN [ANALYZE] [VERBOSE] statement"),
    (
        "INSERT",
        "INSERT INTO table [(columns)] {VALUES (…), … | query | DEFAULT VALUES}
    [ON CONFLICT [(columns)] {DO NOTHING | DO UPDATE SET column = expression, … [WHERE …]}]
    [RETURNING …]",
    ),
    (
        "MERGE",
        "MERGE INTO table [AS alias] USING source ON condition
    WHEN MATCHED [AND condition] THEN {UPDATE SET … | DELETE | DO NOTHING}
    WHEN NOT MATCHED [AND condition] THEN {INSERT [(columns)] VALUES (…) | DO NOTHING}",
    ),
    (
        "PREPARE",
        "PREPARE name [(types)] AS statement;  EXECUTE name (values);  DEALLOCATE name",
    ),
    ("ROLLBACK", "ROLLBACK;  ROLLBACK TO [SAVEPOINT] name"),
    ("SAVEPOINT", "SAVEPOINT name;  RELEASE [SAVEPOINT] name"),
    (
        "SELECT",
        "[WITH name AS (query), …]
SELECT [DISTINCT] expression [AS name], …
    FROM table [FOR SYSTEM_TIME {AS OF timestamp | FROM timestamp TO timestamp |
                BETWEEN timestamp AND timestamp}] [AS alias], …
    [WHERE …] [GROUP BY …] [HAVING …] [WINDOW …]
    [UNION | INTERSECT | EXCEPT …] [ORDER BY …] [LIMIT n] [OFFSET n]
    [FOR {UPDATE | NO KEY UPDATE | SHARE | KEY SHARE} [OF alias, …] [NOWAIT | SKIP LOCKED]]
SELECT * FROM strandline_history('table', key)   -- all versions of a row
SELECT * FROM 'file.parquet'",
    ),
    ("SET", "SET name = value;  SHOW name"),
    ("TRUNCATE", "TRUNCATE [TABLE] name, …"),
    (
        "UPDATE",
        "UPDATE table [AS alias] SET column = expression, … [FROM from_item, …] [WHERE condition]
    [RETURNING …]",
    ),
];

/// The output of `\h name`; without a name the list of statements.
pub fn statement(name: &str) -> Result<String, Error> {
    let mut text = String::new();
    if name.is_empty() {
        let names: Vec<&str> = STATEMENTS.iter().map(|(name, _)| *name).collect();
        return Ok(format!(
            "\\h STATEMENT explains one of:\n  {}\n",
            names.join(", ")
        ));
    }
    let wanted = name.to_uppercase();
    for (name, syntax) in STATEMENTS {
        if name.starts_with(&wanted) || wanted.starts_with(name) {
            writeln!(text, "{syntax}\n").expect("a string cannot refuse");
        }
    }
    if text.is_empty() {
        let message = format!("there is no help for {name:?}");
        return Err(
            Error::invalid(SqlState::SYNTAX_ERROR, message).with_hint("\\h lists the statements.")
        );
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shell::keywords::META_COMMANDS;

    #[test]
    fn every_statement_is_found() {
        for (name, syntax) in STATEMENTS {
            let text = statement(&name.to_lowercase()).expect("help");
            assert!(text.contains(syntax), "{name}");
        }
        assert!(statement("").expect("the list").contains("UPDATE"));
        assert!(statement("frobnicate").is_err());
        assert!(STATEMENTS.is_sorted_by_key(|(name, _)| *name));
    }

    #[test]
    fn every_meta_command_is_listed() {
        for command in META_COMMANDS {
            assert!(META.contains(command), "{command}");
        }
    }
}
