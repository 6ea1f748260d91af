//! The connector against a server that checks signatures.
#![allow(clippy::unwrap_used, reason = "all of it is test code")]

use std::ffi::OsString;
use std::io::Read as _;
use std::sync::LazyLock;

use gossip_contracts::connector::conformance::{ExpectedItem, Fixture, assert_conforms};
use gossip_contracts::connector::{Connector, OpenError, PageItem};
use gossip_scanner_runtime::connectors::SourceFamily as _;
use gossip_source_buckets::{BucketEnvironment, Buckets};
use gossip_testkit::test_support::S3Server;

static SERVER: LazyLock<S3Server> = LazyLock::new(S3Server::start);

/// Keys that a server in Python keeps as they are; it refuses line feeds.
const KEYS: [&str; 20] = [
    "a",
    "a/",
    "a b",
    "a+b",
    "a%25b",
    "a%b",
    "a%2Fb",
    "a&b",
    "a=b",
    "\u{1}c",
    "\u{7f}",
    "/lead",
    "x//y",
    "trail/",
    "\u{ff3a}",
    "\u{1d655}",
    "e\u{301}",
    "\u{e9}",
    "~*'\"",
    "?q#f",
];

fn family(secret: Option<&str>) -> Buckets {
    let (id, right) = SERVER.access_key();
    let secret = secret.unwrap_or(right);
    Buckets::new(BucketEnvironment::from_lookup(|name| match name {
        "AWS_ACCESS_KEY_ID" => Some(id.to_owned()),
        "AWS_SECRET_ACCESS_KEY" => Some(secret.to_owned()),
        _ => None,
    }))
}

fn name(bucket: &str, prefix: &str) -> OsString {
    format!("//{bucket}/{prefix}?endpoint={}", SERVER.url()).into()
}

fn line(key: &str, body: &str) -> String {
    format!("{}\n", serde_json::json!([key, body]))
}

/// The keys below a prefix of their own, so that the tests share a bucket.
struct Bucket;

impl Fixture for Bucket {
    fn connect(&self) -> Box<dyn Connector> {
        let name = family(None).resolve(&name("bucket", "strange/")).unwrap();
        family(None).open(&name).unwrap()
    }

    fn expected(&self) -> Vec<ExpectedItem> {
        let long = "k".repeat(1024 - "strange/".len());
        let keys = KEYS.iter().copied().chain([&*long]).map(|key| format!("strange/{key}"));
        keys.map(|key| ExpectedItem::new(key.clone(), format!("of {}", key.len()))).collect()
    }
}

#[test]
fn a_bucket_with_strange_keys_conforms() {
    let lines = Bucket.expected().into_iter().map(|item| {
        let text = |bytes| String::from_utf8(bytes).unwrap();
        line(&text(item.key), &text(item.body))
    });
    SERVER.put(&lines.collect::<String>());
    assert_conforms(&mut Bucket);
}

#[test]
fn what_the_server_refuses_is_reported() {
    let refusal =
        |family: Buckets, bucket| family.resolve(&name(bucket, "")).unwrap_err().to_string();
    assert!(refusal(family(None), "nowhere").contains("no such bucket"));
    let wrong = refusal(family(Some("wrong")), "bucket");
    assert!(wrong.contains("does not accept the credentials"), "{wrong}");
}

#[test]
fn a_large_object_is_a_reader() {
    SERVER.put(&line("large", &"0123456789".repeat(300_000)));
    let connector = family(None).open(&name("bucket", "large")).unwrap();
    let mut scratch = Vec::new();
    let mut read = String::new();
    let item = PageItem::new(b"large");
    connector.open(item, &mut scratch).unwrap().read_to_string(&mut read).unwrap();
    assert!(read == "0123456789".repeat(300_000));
    let gone = connector.open(PageItem::new(b"large-not"), &mut scratch).err();
    assert_eq!(gone, Some(OpenError::Vanished));
}
