//! Random expressions of a given type over the columns of a scope.

use super::generator::Generator;
use super::scope::{Column, Kind, Scope};

const NUMBERS: [Kind; 3] = [Kind::Integer, Kind::Bigint, Kind::Numeric];
const COMPARED: [Kind; 5] = [
    Kind::Integer,
    Kind::Bigint,
    Kind::Numeric,
    Kind::Text,
    Kind::Date,
];

impl Generator {
    /// An expression of type `kind` that nests at most `depth` operators.
    pub(super) fn expression(&mut self, kind: Kind, depth: u32, scope: &Scope) -> String {
        if let Some(rows) = &scope.grouped_rows
            && self.rng.one_in(3)
        {
            return self.aggregate(kind, rows);
        }
        if depth == 0 || self.rng.one_in(4) {
            return self.leaf(kind, scope);
        }
        if self.rng.one_in(12) {
            return self.unchanged(kind, depth - 1, scope);
        }
        if self.rng.one_in(8) {
            return self.alternative(kind, depth - 1, scope);
        }
        if scope.subqueries > 0 && self.rng.one_in(14) {
            return self.scalar_subquery(kind, scope);
        }
        match kind {
            Kind::Integer => self.integer(depth - 1, scope),
            Kind::Bigint => self.bigint(depth - 1, scope),
            Kind::Numeric => self.numeric(depth - 1, scope),
            Kind::Text => self.text(depth - 1, scope),
            Kind::Date => self.date(depth - 1, scope),
            Kind::Boolean => self.condition(depth - 1, scope),
        }
    }

    /// A column if there is one of the type, else a literal.
    pub(super) fn leaf(&mut self, kind: Kind, scope: &Scope) -> String {
        let outer = self.rng.one_in(3);
        let own: Vec<&Column> = scope.columns.iter().filter(|c| c.kind == kind).collect();
        let others: Vec<&Column> = scope.outer.iter().filter(|c| c.kind == kind).collect();
        let columns = match outer && !others.is_empty() || own.is_empty() {
            true => others,
            false => own,
        };
        if columns.is_empty() || self.rng.one_in(6) {
            return self.literal(kind);
        }
        self.pick(&columns).sql.clone()
    }

    /// A constant; NULL once in 30.
    pub(super) fn literal(&mut self, kind: Kind) -> String {
        if self.rng.one_in(30) {
            return format!("CAST(NULL AS {})", kind.sql());
        }
        match kind {
            Kind::Integer => self.rng.below(9).to_string(),
            Kind::Bigint => format!("CAST({} AS bigint)", self.rng.below(9)),
            Kind::Numeric => format!("{}.{}", self.rng.below(9), self.rng.below(4) * 25),
            Kind::Text => {
                let text = *self.pick(&["a", "b", "ab", "c", "x", "", "B"]);
                match self.rng.one_in(3) {
                    true => format!("CAST('{text}' AS text)"),
                    false => format!("'{text}'"),
                }
            }
            Kind::Date => format!("date '2024-01-{:02}'", 1 + self.rng.below(9)),
            Kind::Boolean => (*self.pick(&["true", "false"])).to_string(),
        }
    }

    /// An expression that a planner simplifies to another.
    fn unchanged(&mut self, kind: Kind, depth: u32, scope: &Scope) -> String {
        let value = self.expression(kind, depth, scope);
        self.wrapped(kind, &value)
    }

    /// `value` written another way.
    pub(super) fn wrapped(&mut self, kind: Kind, value: &str) -> String {
        if self.rng.one_in(3) {
            return match self.rng.below(3) {
                0 => format!("coalesce({value}, {value})"),
                1 => format!("CASE WHEN true THEN {value} END"),
                _ => format!("CAST({value} AS {})", kind.sql()),
            };
        }
        match kind {
            Kind::Integer | Kind::Bigint | Kind::Numeric => match self.rng.below(4) {
                0 => format!("({value} + 0)"),
                1 => format!("({value} * 1)"),
                2 => format!("(- (- {value}))"),
                _ => format!("({value} - 0)"),
            },
            Kind::Text => format!("({value} || '')"),
            Kind::Date => format!("({value} + 0)"),
            Kind::Boolean => match self.rng.below(5) {
                0 => format!("({value} AND true)"),
                1 => format!("({value} OR false)"),
                2 => format!("(NOT (NOT {value}))"),
                3 => format!("({value} = true)"),
                _ => format!("({value} OR {value})"),
            },
        }
    }

    /// One of several values of a type.
    fn alternative(&mut self, kind: Kind, depth: u32, scope: &Scope) -> String {
        let first = self.expression(kind, depth, scope);
        let second = self.expression(kind, depth, scope);
        match self.rng.below(6) {
            0 => format!("coalesce({first}, {second})"),
            1 => format!("nullif({first}, {second})"),
            2 if kind != Kind::Boolean => format!("greatest({first}, {second})"),
            3 if kind != Kind::Boolean => format!("least({first}, {second})"),
            4 => {
                let (operand, value) = (
                    self.expression(Kind::Text, depth, scope),
                    self.literal(Kind::Text),
                );
                format!("CASE {operand} WHEN {value} THEN {first} ELSE {second} END")
            }
            5 => {
                let when = self.condition(depth, scope);
                format!("CASE WHEN {when} THEN {first} END")
            }
            _ => {
                let when = self.condition(depth, scope);
                format!("CASE WHEN {when} THEN {first} ELSE {second} END")
            }
        }
    }

    fn integer(&mut self, depth: u32, scope: &Scope) -> String {
        match self.rng.below(8) {
            0 | 1 => self.operation(Kind::Integer, &["+", "-"], depth, scope),
            2 => self.operation(Kind::Integer, &["*"], depth, scope),
            3 => {
                let (value, by) = (
                    self.expression(Kind::Integer, depth, scope),
                    self.expression(Kind::Integer, depth, scope),
                );
                let operator = *self.pick(&["/", "%"]);
                match self.rng.one_in(4) {
                    true => format!("({value} {operator} {by})"),
                    false => format!("({value} {operator} nullif({by}, 0))"),
                }
            }
            4 => format!("abs({})", self.expression(Kind::Integer, depth, scope)),
            5 => format!("length({})", self.expression(Kind::Text, depth, scope)),
            6 => {
                let (later, sooner) = (
                    self.expression(Kind::Date, depth, scope),
                    self.expression(Kind::Date, depth, scope),
                );
                format!("({later} - {sooner})")
            }
            _ => format!("(- {})", self.expression(Kind::Integer, depth, scope)),
        }
    }

    fn bigint(&mut self, depth: u32, scope: &Scope) -> String {
        match self.rng.below(4) {
            0 => format!(
                "CAST({} AS bigint)",
                self.expression(Kind::Integer, depth, scope)
            ),
            1 => {
                let (big, small) = (
                    self.expression(Kind::Bigint, depth, scope),
                    self.expression(Kind::Integer, depth, scope),
                );
                format!("({big} + {small})")
            }
            _ => self.operation(Kind::Bigint, &["+", "-", "*"], depth, scope),
        }
    }

    fn numeric(&mut self, depth: u32, scope: &Scope) -> String {
        match self.rng.below(7) {
            0 => {
                let digits = self.rng.below(3);
                format!(
                    "round({}, {digits})",
                    self.expression(Kind::Numeric, depth, scope)
                )
            }
            1 => {
                let function = *self.pick(&["abs", "ceil", "floor", "-"]);
                format!(
                    "({function} ({}))",
                    self.expression(Kind::Numeric, depth, scope)
                )
            }
            2 => {
                let (numeric, integer) = (
                    self.expression(Kind::Numeric, depth, scope),
                    self.expression(Kind::Integer, depth, scope),
                );
                let operator = *self.pick(&["+", "-", "*"]);
                format!("({numeric} {operator} {integer})")
            }
            3 => {
                let (numeric, by) = (
                    self.expression(Kind::Numeric, depth, scope),
                    self.expression(Kind::Integer, depth, scope),
                );
                format!("round({numeric} / nullif({by}, 0), 3)")
            }
            4 => format!(
                "CAST({} AS numeric(12,3))",
                self.expression(Kind::Integer, depth, scope)
            ),
            _ => self.operation(Kind::Numeric, &["+", "-", "*"], depth.min(1), scope),
        }
    }

    fn text(&mut self, depth: u32, scope: &Scope) -> String {
        let value = self.expression(Kind::Text, depth, scope);
        match self.rng.below(7) {
            0 | 1 => format!("({value} || {})", self.expression(Kind::Text, depth, scope)),
            2 => format!("upper({value})"),
            3 => format!("substr({value}, {}, 2)", 1 + self.rng.below(2)),
            4 => format!("replace({value}, 'a', 'zz')"),
            5 => format!(
                "CAST({} AS text)",
                self.expression(Kind::Integer, depth, scope)
            ),
            _ => format!("trim({value})"),
        }
    }

    fn date(&mut self, depth: u32, scope: &Scope) -> String {
        let operator = *self.pick(&["+", "-"]);
        let days = match self.rng.one_in(2) {
            true => self.literal(Kind::Integer),
            false => format!("({} % 100)", self.expression(Kind::Integer, depth, scope)),
        };
        format!(
            "({} {operator} {days})",
            self.expression(Kind::Date, depth, scope)
        )
    }

    fn operation(&mut self, kind: Kind, operators: &[&str], depth: u32, scope: &Scope) -> String {
        let left = self.expression(kind, depth, scope);
        let right = self.expression(kind, depth, scope);
        format!("({left} {} {right})", self.pick(operators))
    }

    /// An expression of type boolean.
    pub(super) fn condition(&mut self, depth: u32, scope: &Scope) -> String {
        if depth == 0 {
            return self.comparison(0, scope);
        }
        match self.rng.below(16) {
            0..=4 => self.comparison(depth - 1, scope),
            5 => self.membership(depth - 1, scope),
            6 => self.about_one(depth - 1, scope),
            7 => self.range(depth - 1, scope),
            8 => self.nullness(depth - 1, scope),
            9 => {
                let value = self.expression(Kind::Text, depth - 1, scope);
                let not = *self.pick(&["", "NOT "]);
                let pattern = *self.pick(&["a%", "%b", "_", "%", "a_%"]);
                format!("({value} {not}LIKE '{pattern}')")
            }
            10 => format!("(NOT {})", self.condition(depth - 1, scope)),
            11 => {
                let left = self.condition(depth - 1, scope);
                let right = self.condition(depth - 1, scope);
                format!("({left} AND {right})")
            }
            13 | 14 if scope.subqueries > 0 => self.subquery_condition(depth - 1, scope),
            _ => {
                let left = self.condition(depth - 1, scope);
                let right = self.condition(depth - 1, scope);
                format!("({left} OR {right})")
            }
        }
    }

    /// Two types whose values can be compared.
    fn comparable(&mut self) -> (Kind, Kind) {
        let kind = *self.pick(&COMPARED);
        match NUMBERS.contains(&kind) {
            true => (kind, *self.pick(&NUMBERS)),
            false => (kind, kind),
        }
    }

    fn comparison(&mut self, depth: u32, scope: &Scope) -> String {
        let (left, right) = self.comparable();
        let operator = match self.rng.one_in(8) {
            true => *self.pick(&["IS DISTINCT FROM", "IS NOT DISTINCT FROM"]),
            false => *self.pick(&["=", "=", "<>", "<", "<=", ">", ">="]),
        };
        let left = self.expression(left, depth, scope);
        let right = self.expression(right, depth, scope);
        format!("({left} {operator} {right})")
    }

    /// `x [NOT] IN (…)`, the operand among the values once in 3.
    fn membership(&mut self, depth: u32, scope: &Scope) -> String {
        let (kind, _) = self.comparable();
        let value = self.expression(kind, depth, scope);
        self.membership_of(&value, kind, scope)
    }

    fn membership_of(&mut self, value: &str, kind: Kind, scope: &Scope) -> String {
        let mut list = Vec::new();
        for _ in 0..1 + self.rng.below(4) {
            list.push(match self.rng.below(3) {
                0 => value.to_string(),
                1 => self.leaf(kind, scope),
                _ => self.literal(kind),
            });
        }
        let not = *self.pick(&["", "NOT "]);
        format!("({value} {not}IN ({}))", list.join(", "))
    }

    /// Two conditions on one value.
    fn about_one(&mut self, depth: u32, scope: &Scope) -> String {
        let kind = *self.pick(&COMPARED);
        let value = match self.rng.one_in(3) {
            true => self.expression(kind, depth, scope),
            false => self.leaf(kind, scope),
        };
        let mut conditions = Vec::new();
        for _ in 0..2 {
            conditions.push(match self.rng.below(3) {
                0 => {
                    let operator = *self.pick(&["=", "<>", "<", "<=", ">", ">="]);
                    format!("({value} {operator} {})", self.leaf(kind, scope))
                }
                _ => self.membership_of(&value, kind, scope),
            });
        }
        format!("({})", conditions.join(*self.pick(&[" AND ", " OR "])))
    }

    fn range(&mut self, depth: u32, scope: &Scope) -> String {
        let (kind, bounds) = self.comparable();
        let value = self.expression(kind, depth, scope);
        let low = self.expression(bounds, depth, scope);
        let high = self.expression(bounds, depth, scope);
        let not = *self.pick(&["", "", "NOT "]);
        format!("({value} {not}BETWEEN {low} AND {high})")
    }

    fn nullness(&mut self, depth: u32, scope: &Scope) -> String {
        if self.rng.one_in(3) {
            let test = *self.pick(&[
                "IS TRUE",
                "IS NOT TRUE",
                "IS FALSE",
                "IS NOT FALSE",
                "IS UNKNOWN",
            ]);
            return format!("({} {test})", self.condition(depth, scope));
        }
        let kind = *self.pick(&COMPARED);
        let test = *self.pick(&["IS NULL", "IS NOT NULL"]);
        format!("({} {test})", self.expression(kind, depth, scope))
    }

    /// EXISTS, IN, ANY and ALL over a query that may refer to the scope's columns.
    fn subquery_condition(&mut self, depth: u32, scope: &Scope) -> String {
        let inner = scope.inner();
        let not = *self.pick(&["", "NOT "]);
        if self.rng.one_in(3) {
            let kind = self.kind();
            let query = self.query(&inner, Some(&[kind]));
            return format!("({not}EXISTS ({}))", query.sql);
        }
        let (left, right) = self.comparable();
        let value = self.expression(left, depth, scope);
        let query = self.query(&inner, Some(&[right]));
        match self.rng.one_in(4) {
            true => {
                let operator = *self.pick(&["=", "<>", "<", ">="]);
                let quantifier = *self.pick(&["ANY", "ALL"]);
                format!("({value} {operator} {quantifier} ({}))", query.sql)
            }
            false => format!("({value} {not}IN ({}))", query.sql),
        }
    }

    /// A subquery of at most one row.
    fn scalar_subquery(&mut self, kind: Kind, scope: &Scope) -> String {
        let inner = scope.inner();
        if self.rng.one_in(4) {
            let query = self.query(&inner, Some(&[kind]));
            return format!(
                "(SELECT c1 FROM ({}) AS one (c1) ORDER BY 1 LIMIT 1)",
                query.sql
            );
        }
        let (from, rows) = self.clause_of_from(&inner);
        let filter = match self.rng.one_in(3) {
            true => String::new(),
            false => format!(" WHERE {}", self.condition(2, &rows)),
        };
        let value = self.aggregate(kind, &rows.own());
        format!("(SELECT {value} FROM {from}{filter})")
    }

    /// An aggregate function's call of type `kind` over the rows of a scope, whose columns must be
    /// of its own query: a call over outer columns alone would belong to the outer query.
    pub(super) fn aggregate(&mut self, kind: Kind, rows: &Scope) -> String {
        let filter = match self.rng.one_in(8) {
            true => format!(" FILTER (WHERE {})", self.condition(1, rows)),
            false => String::new(),
        };
        let distinct = match self.rng.one_in(4) {
            true => "DISTINCT ",
            false => "",
        };
        let call = match (kind, self.rng.below(4)) {
            (Kind::Bigint, 0) => "count(*)".to_string(),
            (Kind::Bigint, 1) => {
                let kind = self.kind();
                format!("count({})", self.expression(kind, 1, rows))
            }
            (Kind::Bigint, 2) => {
                let kind = self.kind();
                format!("count(DISTINCT {})", self.expression(kind, 1, rows))
            }
            (Kind::Bigint, _) => {
                format!("sum({distinct}{})", self.expression(Kind::Integer, 1, rows))
            }
            (Kind::Numeric, 0) => {
                let argument = self.expression(Kind::Numeric, 1, rows);
                return format!("round(avg({distinct}{argument}){filter}, 3)");
            }
            (Kind::Numeric, 1 | 2) => {
                let argument = *self.pick(&[Kind::Bigint, Kind::Numeric]);
                format!("sum({distinct}{})", self.expression(argument, 1, rows))
            }
            (Kind::Boolean, _) => {
                let function = *self.pick(&["bool_and", "bool_or"]);
                format!("{function}({})", self.expression(kind, 1, rows))
            }
            (Kind::Text, 0) => {
                let value = self.expression(kind, 1, rows);
                format!("string_agg({value}, ',' ORDER BY {value})")
            }
            _ => {
                let function = *self.pick(&["min", "max"]);
                format!("{function}({distinct}{})", self.expression(kind, 1, rows))
            }
        };
        format!("{call}{filter}")
    }
}
