//! Random statements against a model in memory.

use super::Fixture;
use std::collections::BTreeMap;
use strandline::SqlState;

/// A generator of numbers that the seed determines.
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> i64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) % n) as i64
    }
}

type Model = BTreeMap<i64, (i64, Option<i64>)>;

fn literal(v: Option<i64>) -> String {
    v.map_or("NULL".to_string(), |v| v.to_string())
}

/// One statement and what the model says it does: the number of rows, or an error.
fn step(random: &mut Random, model: &mut Model) -> (String, Result<usize, SqlState>) {
    let (k, a) = (random.below(30), random.below(100));
    let b = (random.below(4) > 0).then(|| random.below(100));
    match random.below(9) {
        0 | 1 => {
            let sql = format!("INSERT INTO t VALUES ({k}, {a}, {})", literal(b));
            if model.contains_key(&k) {
                return (sql, Err(SqlState::UNIQUE_VIOLATION));
            }
            model.insert(k, (a, b));
            (sql, Ok(1))
        }
        2 => {
            let sql = format!(
                "INSERT INTO t VALUES ({k}, {a}, {}), ({}, 5, 5) ON CONFLICT (k) DO UPDATE \
                 SET a = t.a + excluded.a, b = NULL WHERE t.a < 500",
                literal(b),
                k + 1
            );
            let mut rows = 0;
            for (k, a, b) in [(k, a, b), (k + 1, 5, Some(5))] {
                match model.get_mut(&k) {
                    Some(row) if row.0 < 500 => *row = (row.0 + a, None),
                    Some(_) => continue,
                    None => {
                        model.insert(k, (a, b));
                    }
                }
                rows += 1;
            }
            (sql, Ok(rows))
        }
        3 => {
            let sql = format!(
                "INSERT INTO t VALUES ({k}, {a}, {}) ON CONFLICT DO NOTHING",
                literal(b)
            );
            let new = !model.contains_key(&k);
            model.entry(k).or_insert((a, b));
            (sql, Ok(usize::from(new)))
        }
        4 => {
            let hit: Vec<i64> = model
                .iter()
                .filter(|(_, r)| r.0 < a)
                .map(|(k, _)| *k)
                .collect();
            for key in &hit {
                let row = model.get_mut(key).expect("just found");
                *row = (row.0 + 1, row.1.map(|b| b + row.0));
            }
            (
                format!("UPDATE t SET a = a + 1, b = b + a WHERE a < {a}"),
                Ok(hit.len()),
            )
        }
        5 => {
            let moved: Model = model.iter().map(|(k, r)| (k + 1, *r)).collect();
            *model = moved;
            ("UPDATE t SET k = k + 1".to_string(), Ok(model.len()))
        }
        6 => {
            let before = model.len();
            model.retain(|key, r| !(*key % 7 == k % 7 && r.1.is_some()));
            (
                format!("DELETE FROM t WHERE k % 7 = {} AND b IS NOT NULL", k % 7),
                Ok(before - model.len()),
            )
        }
        7 => {
            let most = model.values().map(|r| r.0).max();
            let hit = model.values_mut().filter(|r| Some(r.0) == most);
            let rows = hit.map(|r| r.1 = Some(-1)).count();
            (
                "UPDATE t SET b = -1 WHERE a = (SELECT max(a) FROM t)".to_string(),
                Ok(rows),
            )
        }
        _ => {
            let sql = format!(
                "MERGE INTO t USING (VALUES ({k}, {a}), ({}, {a})) AS s(k, a) ON t.k = s.k \
                 WHEN MATCHED AND t.a > s.a THEN DELETE WHEN MATCHED THEN UPDATE SET a = s.a \
                 WHEN NOT MATCHED THEN INSERT VALUES (s.k, s.a, NULL)",
                k + 100
            );
            for key in [k, k + 100] {
                match model.get(&key).copied() {
                    Some(row) if row.0 > a => {
                        model.remove(&key);
                    }
                    Some(row) => {
                        model.insert(key, (a, row.1));
                    }
                    None => {
                        model.insert(key, (a, None));
                    }
                }
            }
            (sql, Ok(2))
        }
    }
}

fn check(f: &mut Fixture, model: &Model, context: &str) {
    let expected: Vec<String> = model
        .iter()
        .map(|(k, (a, b))| format!("{k}|{a}|{}", literal(*b)))
        .collect();
    let got = f.run("SELECT * FROM t ORDER BY k").expect(context);
    assert_eq!(got, expected.join(" / "), "{context}");
}

#[test]
fn random_statements_agree_with_the_model() {
    for seed in 1..=6u64 {
        let mut random = Random(seed);
        let mut f = Fixture::new("CREATE TABLE t (k int PRIMARY KEY, a int, b int)");
        let mut model = Model::new();
        for number in 0..120 {
            let before = model.clone();
            let in_block = random.below(4) == 0;
            let keep = random.below(2) == 0;
            if in_block {
                f.script("BEGIN");
            }
            let mut failed = false;
            for _ in 0..if in_block { 3 } else { 1 } {
                let (sql, expected) = step(&mut random, &mut model);
                let context = format!("seed {seed}, statement {number}: {sql}");
                match (f.run(&sql), expected) {
                    (Ok(tag), Ok(rows)) => {
                        assert!(tag.ends_with(&format!(" {rows}")), "{context}\n{tag}");
                    }
                    (Err(error), Err(state)) => {
                        assert_eq!(error.sqlstate(), state, "{context}");
                        failed = true;
                        break;
                    }
                    (got, expected) => panic!("{context}\n{got:?}, expected {expected:?}"),
                }
            }
            if in_block {
                f.script(if keep && !failed {
                    "COMMIT"
                } else {
                    "ROLLBACK"
                });
            }
            if failed || in_block && !keep {
                model = before;
            }
            if random.below(20) == 0 {
                f.database.merge_all().expect("merges");
            }
            check(
                &mut f,
                &model,
                &format!("seed {seed} after statement {number}"),
            );
        }
    }
}
