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
        let found = client
            .query("SELECT v FROM t WHERE v = $1", &[&bytes])
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
