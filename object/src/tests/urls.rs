//! Devices by URL.

use super::*;
use crate::Place;
use strandline_base::SqlState;

fn objects(url: &str) -> crate::ObjectUrl {
    match Place::parse(url).expect("a URL") {
        Place::Objects(url) => url,
        Place::Directory(_) => panic!("{url} is no directory"),
    }
}

#[test]
fn stores_in_memory_are_shared_by_name() {
    let one = objects("memory://urls-1/p/").open(options()).expect("open");
    assert_eq!(one.location(), "memory://urls-1/p");
    write(&*one, "chunks-1", &content(3000)).expect("write");
    drop(one);
    let again = objects("memory://urls-1/p").open(options()).expect("open");
    assert_eq!(again.list().expect("list"), ["chunks-1"]);
    assert_eq!(whole(&*again, "chunks-1"), content(3000));
    for other in ["memory://urls-1", "memory://urls-1/q", "memory://urls-2/p"] {
        let other = objects(other).open(options()).expect("open");
        assert!(other.list().expect("list").is_empty());
    }
}

#[test]
fn a_file_url_is_a_directory() {
    assert_eq!(
        Place::parse("file:///a/b").expect("URL"),
        Place::Directory("/a/b".into())
    );
    assert_eq!(
        Place::recorded("/a/b").expect("path"),
        Place::Directory("/a/b".into())
    );
    assert_eq!(
        Place::recorded("/a://b").expect("path"),
        Place::Directory("/a://b".into())
    );
    assert_eq!(
        Place::recorded("memory://a/b").expect("URL"),
        Place::parse("memory://a/b").expect("URL")
    );
}

#[test]
fn other_urls_are_refused_with_the_valid_ones() {
    for url in [
        "",
        "/dir",
        "dir",
        "http://a",
        "gs://b/p",
        "S3://b/p",
        "file://dir",
        "memory://",
        "s3:///p",
        "s3://b/p?x",
        "memory://a//b",
        "file:///a%20b",
        "file:///a?b",
        "file://host/a",
    ] {
        let error = Place::parse(url).expect_err(url);
        assert_eq!(
            error.sqlstate(),
            SqlState::INVALID_PARAMETER_VALUE,
            "{error}"
        );
        assert!(error.message().contains(url), "{error}");
        assert!(
            error
                .hint()
                .is_some_and(|hint| hint.contains("s3://bucket/prefix")),
            "{error}"
        );
    }
    for (url, missing) in [
        ("s3:///p", "the bucket is missing"),
        ("memory://", "the name of the store is missing"),
    ] {
        let error = Place::parse(url).expect_err(url);
        assert!(error.message().contains(missing), "{error}");
    }
}

#[test]
fn credentials_are_refused_and_not_repeated() {
    for url in [
        "s3://key:secret@bucket/p",
        "s4://key:secret@bucket/p",
        "key:secret@bucket",
        "file://key:secret@host/p",
    ] {
        let error = Place::parse(url).expect_err("credentials");
        assert!(
            error
                .hint()
                .is_some_and(|hint| hint.contains("AWS_ACCESS_KEY_ID"))
        );
        assert!(!error.message().contains("secret"), "{error}");
    }
    assert_eq!(
        Place::parse("file:///a@b").expect("a path"),
        Place::Directory("/a@b".into())
    );
}

#[test]
#[cfg(not(feature = "s3"))]
fn s3_needs_its_feature() {
    let error = Place::parse("s3://bucket/p").expect_err("no S3");
    assert_eq!(error.sqlstate(), SqlState::FEATURE_NOT_SUPPORTED);
    assert!(error.hint().is_some_and(|hint| hint.contains("\"s3\"")));
}
