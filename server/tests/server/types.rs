//! Every type in both formats, out and in. The expected texts are PostgreSQL 15's.

use crate::support::{TestServer, texts};
use tokio_postgres::types::{FromSql, IsNull, ToSql, Type, to_sql_checked};

/// A value's bytes, of whatever type.
#[derive(Debug, PartialEq, Clone)]
struct Bytes(Vec<u8>);

impl<'a> FromSql<'a> for Bytes {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Self, Box<dyn std::error::Error + Sync + Send>> {
        Ok(Self(raw.to_vec()))
    }
    fn accepts(_: &Type) -> bool {
        true
    }
}

impl ToSql for Bytes {
    fn to_sql(
        &self,
        _: &Type,
        out: &mut bytes::BytesMut,
    ) -> Result<IsNull, Box<dyn std::error::Error + Sync + Send>> {
        out.extend_from_slice(&self.0);
        Ok(IsNull::No)
    }
    fn accepts(_: &Type) -> bool {
        true
    }
    to_sql_checked!();
}

/// Type, its number, a value and how it is printed.
const VALUES: &[(&str, u32, &str, &str)] = &[
    ("boolean", 16, "true", "t"),
    ("smallint", 21, "-32768", "-32768"),
    ("integer", 23, "2147483647", "2147483647"),
    ("bigint", 20, "-9223372036854775808", "-9223372036854775808"),
    ("real", 700, "1.1", "1.1"),
    ("double precision", 701, "'-Infinity'", "-Infinity"),
    ("double precision", 701, "1e100", "1e+100"),
    ("numeric(12,3)", 1700, "-1234567.5", "-1234567.500"),
    (
        "numeric(30,0)",
        1700,
        "123456789012345678901234567890",
        "123456789012345678901234567890",
    ),
    ("text", 25, "'a ''quoted'' é'", "a 'quoted' é"),
    ("varchar(5)", 1043, "'abc'", "abc"),
    ("json", 114, "'{\"a\": [1, 2]}'", "{\"a\": [1, 2]}"),
    ("bytea", 17, "'\\x00ff10'", "\\x00ff10"),
    ("date", 1082, "'1999-12-31'", "1999-12-31"),
    ("date", 1082, "'0044-03-15 BC'", "0044-03-15 BC"),
    ("time", 1083, "'23:59:59.5'", "23:59:59.5"),
    (
        "timestamp",
        1114,
        "'2024-02-29 12:34:56.789'",
        "2024-02-29 12:34:56.789",
    ),
    (
        "timestamptz",
        1184,
        "'2024-02-29 12:34:56+02'",
        "2024-02-29 10:34:56+00",
    ),
    (
        "interval",
        1186,
        "'1 year 2 mons -3 days 04:05:06.7'",
        "1 year 2 mons -3 days +04:05:06.7",
    ),
    (
        "uuid",
        2950,
        "'00112233-4455-6677-8899-aabbccddeeff'",
        "00112233-4455-6677-8899-aabbccddeeff",
    ),
    ("point", 600, "'(1.5,-Infinity)'", "(1.5,-Infinity)"),
    ("box", 603, "'(0,0),(1,2.25)'", "(1,2.25),(0,0)"),
];

#[tokio::test]
async fn every_type_goes_out_and_comes_in_in_both_formats() {
    let server = TestServer::start();
    let client = server.connect().await;
    for (t, oid, value, shown) in VALUES {
        client
            .batch_execute("DROP TABLE IF EXISTS t")
            .await
            .unwrap();
        client
            .batch_execute(&format!("CREATE TABLE t (v {t})"))
            .await
            .unwrap();
        client
            .batch_execute(&format!("INSERT INTO t VALUES ({value}), (NULL)"))
            .await
            .unwrap();
        let all = "SELECT v FROM t ORDER BY v IS NULL";
        let expected = [Some((*shown).to_string()), None];
        assert_eq!(texts(&client, all).await, expected, "{t}");

        let rows = client.query(all, &[]).await.unwrap();
        assert_eq!(rows[0].columns()[0].type_().oid(), *oid, "{t}");
        let bytes: Bytes = rows[0].get(0);
        assert_eq!(rows[1].get::<_, Option<Bytes>>(0), None, "{t}");

        // The same bytes as a parameter are the same value.
        let insert = client.prepare("INSERT INTO t VALUES ($1)").await.unwrap();
        client.execute("DELETE FROM t", &[]).await.unwrap();
        client
            .execute(&insert, &[&Some(bytes.clone())])
            .await
            .unwrap();
        client.execute(&insert, &[&None::<Bytes>]).await.unwrap();
        assert_eq!(texts(&client, all).await, expected, "{t} as a parameter");
        let equals = match *t {
            "point" | "box" => "~=",
            _ => "=",
        };
        let found = client
            .query(&format!("SELECT v FROM t WHERE v {equals} $1"), &[&bytes])
            .await;
        // json has no equality.
        assert!(
            *t == "json" || found.unwrap().len() == 1,
            "{t} in a condition"
        );
    }
}

#[tokio::test]
async fn values_are_what_drivers_take_them_for() {
    let server = TestServer::start();
    let client = server.connect().await;
    let row = client
        .query_one(
            "SELECT true, 1::smallint, 2, 3::bigint, 1.5::real, 2.5::double precision, 'x', \
             '\\x01'::bytea, ARRAY[1, 2, NULL], ARRAY['a', 'b c'], count(*) FROM generate_series(1, 3)",
            &[],
        )
        .await
        .unwrap();
    assert!(row.get::<_, bool>(0));
    assert_eq!(row.get::<_, i16>(1), 1);
    assert_eq!(row.get::<_, i32>(2), 2);
    assert_eq!(row.get::<_, i64>(3), 3);
    assert_eq!(row.get::<_, f32>(4), 1.5);
    assert_eq!(row.get::<_, f64>(5), 2.5);
    assert_eq!(row.get::<_, &str>(6), "x");
    assert_eq!(row.get::<_, Vec<u8>>(7), [1]);
    assert_eq!(row.get::<_, Vec<Option<i32>>>(8), [Some(1), Some(2), None]);
    assert_eq!(row.get::<_, Vec<String>>(9), ["a", "b c"]);
    assert_eq!(row.get::<_, i64>(10), 3);
}

#[tokio::test]
async fn arrays_are_parameters_in_both_formats() {
    let server = TestServer::start();
    let client = server.connect().await;
    client
        .batch_execute(
            "CREATE TABLE t (k bigint PRIMARY KEY, s text, u uuid, n numeric(10,2)); \
             INSERT INTO t VALUES (1, 'a', '00112233-4455-6677-8899-aabbccddeeff', 1.50), \
             (2, 'b c', NULL, 2), (3, NULL, NULL, NULL)",
        )
        .await
        .unwrap();
    let keys = |rows: Vec<tokio_postgres::Row>| -> Vec<i64> {
        rows.iter().map(|row| row.get(0)).collect()
    };
    // The server says the parameter's type, the driver sends it in binary form.
    let by_key = client
        .prepare("SELECT k FROM t WHERE k = ANY($1) ORDER BY k")
        .await
        .unwrap();
    assert_eq!(by_key.params(), [Type::INT8_ARRAY]);
    for (wanted, found) in [
        (vec![Some(3i64), Some(1), Some(9)], vec![1, 3]),
        (vec![None, Some(2)], vec![2]),
        (vec![None], vec![]),
        (vec![], vec![]),
    ] {
        let rows = client.query(&by_key, &[&wanted]).await.unwrap();
        assert_eq!(keys(rows), found, "{wanted:?}");
    }
    let none: Option<Vec<i64>> = None;
    let rows = client.query(&by_key, &[&none]).await.unwrap();
    assert_eq!(keys(rows), [0; 0]);
    let rows = client
        .query(
            "SELECT k FROM t WHERE k <> ALL($1) ORDER BY k",
            &[&vec![2i64]],
        )
        .await
        .unwrap();
    assert_eq!(keys(rows), [1, 3]);
    let texts = vec!["b c", "x\"\\,{}", "", "null"];
    let rows = client
        .query("SELECT k FROM t WHERE s = ANY($1)", &[&texts])
        .await
        .unwrap();
    assert_eq!(keys(rows), [2]);
    let row = client
        .query_one("SELECT $1::text[]", &[&texts])
        .await
        .unwrap();
    assert_eq!(row.get::<_, Vec<String>>(0), texts);
    let rows = client
        .query(
            "SELECT * FROM unnest($1::int[]) x ORDER BY 1",
            &[&vec![5, 4]],
        )
        .await
        .unwrap();
    let found: Vec<i32> = rows.iter().map(|row| row.get(0)).collect();
    assert_eq!(found, [4, 5]);
    // A type that the client declares.
    let declared = client
        .prepare_typed("SELECT cardinality($1), $1", &[Type::INT4_ARRAY])
        .await
        .unwrap();
    let row = client.query_one(&declared, &[&vec![7, 8]]).await.unwrap();
    assert_eq!(row.get::<_, i32>(0), 2);
    assert_eq!(row.get::<_, Vec<i32>>(1), [7, 8]);
    let uuids = client
        .prepare_typed("SELECT k FROM t WHERE u = ANY($1)", &[Type::UUID_ARRAY])
        .await
        .unwrap();
    let uuid: Bytes = client
        .query_one("SELECT array_agg(u) FROM t WHERE u IS NOT NULL", &[])
        .await
        .unwrap()
        .get(0);
    assert_eq!(keys(client.query(&uuids, &[&uuid]).await.unwrap()), [1]);
    let numerics: Bytes = client
        .query_one("SELECT '{1.5,NULL}'::numeric[]", &[])
        .await
        .unwrap()
        .get(0);
    let rows = client
        .query("SELECT k FROM t WHERE n = ANY($1)", &[&numerics])
        .await
        .unwrap();
    assert_eq!(keys(rows), [1]);
    // Two dimensions go in and out as text.
    let nested: Bytes = Bytes(
        [2u32, 0, 23, 2, 1, 2, 1, 4, 1, 4, 2, 4, 3, 4, 4]
            .iter()
            .flat_map(|n| n.to_be_bytes())
            .collect(),
    );
    let row = client
        .query_one("SELECT $1::int[]::text", &[&nested])
        .await
        .unwrap();
    assert_eq!(row.get::<_, String>(0), "{{1,2},{3,4}}");
}

#[tokio::test]
async fn bytes_that_are_no_array_are_refused() {
    let server = TestServer::start();
    let client = server.connect().await;
    let statement = client.prepare("SELECT 1 = ANY($1)").await.unwrap();
    let array = |numbers: &[u32]| -> Bytes {
        Bytes(numbers.iter().flat_map(|n| n.to_be_bytes()).collect())
    };
    for (bytes, code) in [
        (Bytes(Vec::new()), "22P03"),
        (array(&[1, 0, 23]), "22P03"),
        (array(&[1, 0, 23, 2, 1, 4, 5]), "22P03"),
        (array(&[1, 0, 23, 1, 1, 4, 5, 6]), "22P03"),
        (array(&[7, 0, 23, 1, 1, 1, 1, 1, 1, 1, 1]), "22P03"),
        (array(&[u32::MAX, 0, 23]), "22P03"),
        (array(&[1, 0, 23, u32::MAX, 1]), "22P03"),
        (array(&[1, 0, 25, 1, 1, 4, 5]), "42804"),
        (array(&[1, 0, 23, 1, 0, 4, 5]), "0A000"),
    ] {
        let result = client.query(&statement, &[&bytes]).await;
        assert_eq!(crate::support::state(result), code, "{bytes:?}");
    }
    let row = client.query_one(&statement, &[&vec![2, 1]]).await.unwrap();
    assert!(row.get::<_, bool>(0));
}
