//! The connector against a server with strange keys, and against one that misbehaves.
#![allow(clippy::unwrap_used, reason = "all of it is test code")]

mod support;

use std::ffi::{OsStr, OsString};
use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use gossip_contracts::connector::conformance::{ExpectedItem, Fixture, assert_conforms};
use gossip_contracts::connector::{
    CheckedEnumeration, Connector, ConnectorError, ListingProblem, OpenError, Page, PageError,
    PageItem, PageLimits, Spoil,
};
use gossip_contracts::coordination::{CursorUpdate, ShardSpecRef};
use gossip_scanner_runtime::connectors::SourceFamily as _;
use gossip_source_buckets::{BucketEnvironment, Buckets};

use support::{Fault, Seen, Server, page, read_all};

const WHOLE: ShardSpecRef<'_> = ShardSpecRef::new(b"", b"", b"");

/// Variables of a process with an access key.
fn environment() -> BucketEnvironment {
    BucketEnvironment::from_lookup(|name| match name {
        "AWS_ACCESS_KEY_ID" => Some("canary-id".to_owned()),
        "AWS_SECRET_ACCESS_KEY" => Some("canary-secret".to_owned()),
        _ => None,
    })
}

fn name(server: &Server, prefix: &str) -> OsString {
    format!("//bucket/{prefix}?endpoint=http://127.0.0.1:{}", server.port).into()
}

fn open(server: &Server) -> Box<dyn Connector> {
    Buckets::new(environment()).open(&name(server, "")).unwrap()
}

fn refusal(server: &Server) -> String {
    Buckets::new(environment()).resolve(&name(server, "")).unwrap_err().to_string()
}

/// Every key, or why there are not all of them.
fn keys(connector: &dyn Connector) -> Result<Vec<Vec<u8>>, PageError> {
    let mut listing = CheckedEnumeration::open(connector, WHOLE, CursorUpdate::initial())?;
    let (mut page, mut keys) = (Page::default(), Vec::new());
    loop {
        listing.next_page(&mut page)?;
        keys.extend(page.items().map(|item| item.key().to_vec()));
        if page.is_exhausted() {
            return Ok(keys);
        }
    }
}

/// Opens an object by its key alone.
fn body(connector: &dyn Connector, key: &[u8]) -> Result<Vec<u8>, OpenError> {
    let mut scratch = Vec::new();
    let body = connector.open(PageItem::new(key), &mut scratch)?;
    read_all(body).map_err(|error| OpenError::from_io(&error))
}

/// Legal keys that programs tend to alter, to refuse, or to sort elsewhere.
fn strange_keys() -> Vec<Vec<u8>> {
    let texts = [
        "a",
        "a/",
        "a/b",
        "a-b",
        "a b",
        "a+b",
        "a%25b",
        "a%b",
        "a%2Fb",
        "a\nb",
        "a\r\nb",
        "a\tb",
        "\u{1}",
        "\u{7f}",
        "/",
        "/lead",
        "//",
        "x//y",
        "trail/",
        "trail//",
        "&amp;",
        "<k>",
        "?q=1",
        "#f",
        "\u{ff3a}",
        "\u{1d655}",
        "e\u{301}",
        "\u{e9}",
        "\\",
        "~",
        "*",
        "'\"",
    ];
    let mut keys: Vec<Vec<u8>> = texts.iter().map(|text| text.as_bytes().to_vec()).collect();
    keys.push("k".repeat(1024).into_bytes());
    keys.push("\u{ff3a}".repeat(341).into_bytes());
    keys
}

struct Strange {
    server: Server,
    items: Vec<(Vec<u8>, Vec<u8>)>,
    denied: Arc<std::sync::Mutex<Vec<u8>>>,
}

impl Fixture for Strange {
    fn connect(&self) -> Box<dyn Connector> {
        open(&self.server)
    }

    fn expected(&self) -> Vec<ExpectedItem> {
        let items = self.items.iter();
        items.map(|(key, body)| ExpectedItem::new(key.clone(), body.clone())).collect()
    }

    fn spoil(&mut self, key: &[u8], spoil: Spoil) -> bool {
        match spoil {
            Spoil::Vanish => {
                self.server.remove(key);
                self.items.retain(|(listed, _)| listed != key);
                true
            }
            Spoil::Deny => {
                *self.denied.lock().unwrap() = key.to_vec();
                let denied = Arc::clone(&self.denied);
                self.server.fail(move |seen| {
                    let is_denied = !seen.is_list() && seen.key == *denied.lock().unwrap();
                    is_denied.then(|| Fault::Refuse(403, "AccessDenied", String::new()))
                });
                true
            }
            // An object that was replaced is read as it is.
            _ => false,
        }
    }
}

#[test]
fn a_bucket_with_strange_keys_conforms() {
    let server = Server::start();
    let items: Vec<_> = strange_keys()
        .into_iter()
        .enumerate()
        .map(|(index, key)| (key, format!("body {index}").into_bytes()))
        .collect();
    items.iter().for_each(|(key, body)| server.put(key, body));
    let mut strange = Strange { server, items, denied: Arc::default() };
    assert_conforms(&mut strange);
    let seen = strange.server.take_seen();
    assert!(seen.iter().all(|seen| seen.method == "GET"));
    assert!(seen.iter().all(|seen| !seen.query.contains_key("continuation-token")));
    let reads: Vec<&Seen> = seen.iter().filter(|seen| !seen.is_list()).collect();
    assert!(!reads.is_empty() && reads.iter().all(|seen| seen.headers.contains_key("if-match")));
}

#[test]
fn names_with_dots_are_listed_and_not_read() {
    let server = Server::start();
    for key in [".", "..", "x/../y", "x/./y", "x/.", "y", "x/...", ".a", "a."] {
        server.put(key, "body");
    }
    let connector = open(&server);
    assert_eq!(keys(&*connector).unwrap().len(), 9);
    server.take_seen();
    for key in [".", "..", "x/../y", "x/./y", "x/."] {
        assert_eq!(body(&*connector, key.as_bytes()), Err(OpenError::Unaddressable));
    }
    assert!(server.take_seen().is_empty(), "nothing was requested");
    for key in ["y", "x/...", ".a", "a."] {
        assert_eq!(body(&*connector, key.as_bytes()).unwrap(), b"body");
    }
}

/// A listing that is resumed behind such a key skips none, and the objects are not called gone.
#[test]
fn names_with_zero_bytes_are_listed_and_not_read() {
    let server = Server::start();
    let all: [&[u8]; 5] = [b"\0", b"a", b"a\0b", b"a\0c", b"b"];
    all.iter().for_each(|key| server.put(key, "body"));
    let connector = open(&server);
    assert_eq!(keys(&*connector).unwrap(), all);
    for (index, key) in all.iter().enumerate() {
        let from = CursorUpdate::with_last_key(key);
        let mut listing = CheckedEnumeration::open(&*connector, WHOLE, from).unwrap();
        let mut page = Page::default();
        listing.next_page(&mut page).unwrap();
        let rest: Vec<&[u8]> = page.items().map(|item| item.key()).collect();
        assert_eq!(rest, all[index + 1..], "behind {key:?}");
    }
    let mut listing =
        CheckedEnumeration::open(&*connector, WHOLE, CursorUpdate::initial()).unwrap();
    let mut page = Page::default();
    listing.next_page(&mut page).unwrap();
    let mut scratch = Vec::new();
    let opened = page.items().map(|item| connector.open(item, &mut scratch).err());
    let unread = Some(OpenError::Unaddressable);
    assert_eq!(opened.collect::<Vec<_>>(), [unread, None, unread, unread, None]);
}

/// Taken for the answer of the store, it would make a run end without its objects.
#[test]
fn a_404_that_is_not_of_the_store_makes_no_object_gone() {
    let server = Server::start();
    server.put("a", "body");
    let connector = open(&server);
    server.fail(|seen| (!seen.is_list()).then(|| Fault::Refuse(404, "Misrouted", String::new())));
    let opened = body(&*connector, b"a");
    assert_eq!(opened, Err(OpenError::Source(ConnectorError::NotFound)));
}

#[test]
fn a_prefix_lists_its_keys_only() {
    let server = Server::start();
    for key in ["a/x", "b", "b/", "b/x", "b/y", "b0", "c"] {
        server.put(key, "");
    }
    let family = Buckets::new(environment());
    let listed = |prefix| keys(&*family.open(&name(&server, prefix)).unwrap()).unwrap();
    assert_eq!(listed("b/"), [&b"b/"[..], b"b/x", b"b/y"]);
    assert_eq!(listed("b"), [&b"b"[..], b"b/", b"b/x", b"b/y", b"b0"]);
    assert_eq!(listed("d").len(), 0);
    let connector = family.open(&name(&server, "b/")).unwrap();
    assert_eq!(body(&*connector, b"c"), Err(OpenError::Vanished), "it is not in the source");
}

#[test]
fn many_pages_take_one_request_each() {
    let server = Server::start();
    for number in 0..5500 {
        server.put(format!("k{number:05}"), "");
    }
    let connector = open(&server);
    server.take_seen();
    assert_eq!(keys(&*connector).unwrap().len(), 5500);
    assert_eq!(server.take_seen().len(), 6);
}

/// Starts a server whose second page is this one.
fn with_second_page(objects: &[(&[u8], &[u8])], is_truncated: bool) -> Box<dyn Connector> {
    let server = Server::start();
    for number in 0..1500 {
        server.put(format!("k{number:04}"), "");
    }
    let second = page(objects, is_truncated);
    server.fail(move |seen| {
        let is_second = seen.query.get("start-after").is_some_and(|after| *after == b"k0999");
        is_second.then(|| Fault::Body(second.clone()))
    });
    open(&server)
}

#[test]
fn a_page_that_breaks_the_protocol_parks_the_shard() {
    let check = |objects: &[(&[u8], &[u8])], is_truncated, problem| {
        let connector = with_second_page(objects, is_truncated);
        let error = keys(&*connector).unwrap_err();
        assert_eq!(error, PageError::Connector(ConnectorError::Listing { problem }));
        assert!(matches!(error.reaction(), gossip_contracts::connector::Reaction::Park(_)));
    };
    check(&[(b"k2", b""), (b"k1", b"")], false, ListingProblem::Unordered);
    check(&[(b"k1", b""), (b"k1", b"")], false, ListingProblem::Unordered);
    check(&[(b"k0999", b""), (b"k1", b"")], false, ListingProblem::Repeated);
    check(&[(b"a", b"")], false, ListingProblem::Repeated);
    check(&[], true, ListingProblem::Stuck);
    let utf16: [(&[u8], &[u8]); 2] = [("\u{1d655}".as_bytes(), b""), ("\u{ff3a}".as_bytes(), b"")];
    check(&utf16, false, ListingProblem::Unordered);
}

#[test]
fn a_page_that_is_no_page_is_an_error() {
    for text in ["", "<html>", "<ListBucketResult>", "<Error><Code>x</Code></Error>"] {
        let server = Server::start();
        server.fail(move |seen| seen.is_list().then(|| Fault::Body(text.to_owned())));
        let error = keys(&*open(&server)).unwrap_err();
        let expected = ConnectorError::Malformed { position: 0 };
        assert_eq!(error, PageError::Connector(expected), "{text}");
    }
}

#[test]
fn requests_that_fail_for_a_moment_are_repeated() {
    let server = Server::start();
    (0..1500).for_each(|number| server.put(format!("k{number:04}"), "body"));
    let count = AtomicUsize::new(0);
    server.fail(move |_| match count.fetch_add(1, Ordering::Relaxed) {
        0 | 3 => Some(Fault::Refuse(503, "SlowDown", String::new())),
        1 => Some(Fault::Close),
        4 => Some(Fault::Cut(1000)),
        6 => Some(Fault::Refuse(500, "InternalError", String::new())),
        _ => None,
    });
    let connector = open(&server);
    assert_eq!(keys(&*connector).unwrap().len(), 1500);
    assert_eq!(body(&*connector, b"k0001").unwrap(), b"body");
}

#[test]
fn a_server_that_always_fails_is_unavailable_and_not_empty() {
    let server = Server::start();
    server.fail(|_| Some(Fault::Refuse(503, "SlowDown", String::new())));
    let error = keys(&*open(&server)).unwrap_err();
    let expected = ConnectorError::Unavailable { kind: ErrorKind::Other };
    assert_eq!(error, PageError::Connector(expected));
    assert!(server.take_seen().len() <= 8);
}

#[test]
fn a_slow_page_is_waited_for() {
    let server = Server::start();
    server.put("a", "");
    server.fail(|seen| {
        if seen.is_list() {
            thread::sleep(Duration::from_secs(3));
        }
        None
    });
    assert_eq!(keys(&*open(&server)).unwrap().len(), 1);
    assert_eq!(server.take_seen().len(), 1);
}

#[test]
fn a_long_body_is_continued_where_it_broke_off() {
    let server = Server::start();
    let content: Vec<u8> = (0..3_000_000_u32).flat_map(|n| (n % 251).to_le_bytes()).collect();
    server.put("large", &content);
    server.fail(|seen| (!seen.is_list()).then_some(Fault::Cut(2_500_000)));
    let connector = open(&server);
    let read = body(&*connector, b"large").unwrap();
    assert!(read == content);
    let ranges = server.take_seen().iter().filter(|it| it.headers.contains_key("range")).count();
    assert_eq!(ranges, 4);
}

/// The rest of another version must never follow the beginning of this one.
#[test]
fn a_body_that_is_replaced_while_it_is_read_has_changed() {
    let server = Server::start();
    server.put("large", vec![b'a'; 3_000_000]);
    let replaced = AtomicU32::new(0);
    server.fail(move |seen| {
        let is_continued = seen.headers.contains_key("range");
        match is_continued && replaced.fetch_add(1, Ordering::Relaxed) == 0 {
            true => Some(Fault::Refuse(412, "PreconditionFailed", String::new())),
            false => (!seen.is_list()).then_some(Fault::Cut(2_000_000)),
        }
    });
    assert_eq!(body(&*open(&server), b"large"), Err(OpenError::Changed));
}

/// As the test above, on a server that ignores `If-Match`.
#[test]
fn another_version_does_not_continue_a_body() {
    let server = Server::start();
    server.put("large", vec![b'a'; 3_000_000]);
    let is_cut = AtomicU32::new(0);
    server.fail(move |seen| match seen.headers.contains_key("range") {
        true => Some(Fault::Refuse(
            206,
            "x",
            "ETag: \"other\"\r\nContent-Range: bytes 2000000-2999999/3000000\r\n".to_owned(),
        )),
        false if seen.is_list() => None,
        false => (is_cut.fetch_add(1, Ordering::Relaxed) == 0).then_some(Fault::Cut(2_000_000)),
    });
    assert_eq!(body(&*open(&server), b"large"), Err(OpenError::Changed));
}

#[test]
fn an_object_that_was_replaced_since_it_was_listed_is_read_as_it_is() {
    let server = Server::start();
    server.put("a", "old");
    let connector = open(&server);
    let mut listing =
        CheckedEnumeration::open(&*connector, WHOLE, CursorUpdate::initial()).unwrap();
    let mut page = Page::default();
    listing.next_page(&mut page).unwrap();
    server.put("a", "new one");
    let (mut scratch, item) = (Vec::new(), page.items().next().unwrap());
    let read = read_all(connector.open(item, &mut scratch).unwrap()).unwrap();
    assert_eq!(read, b"new one");
    server.remove(b"a");
    assert_eq!(connector.open(item, &mut scratch).err(), Some(OpenError::Vanished));
}

#[test]
fn an_object_that_changes_all_the_time_is_unread() {
    let server = Server::start();
    server.put("a", "x");
    server.fail(|seen| {
        (!seen.is_list()).then(|| Fault::Refuse(412, "PreconditionFailed", String::new()))
    });
    assert_eq!(body(&*open(&server), b"a"), Err(OpenError::Changed));
}

#[test]
fn archived_objects_are_unread_with_their_reason() {
    let server = Server::start();
    server.put("a", "x");
    server.fail(|seen| {
        (!seen.is_list()).then(|| Fault::Refuse(403, "InvalidObjectState", String::new()))
    });
    assert_eq!(body(&*open(&server), b"a"), Err(OpenError::Archived));
}

#[test]
fn what_prevents_a_listing_is_reported_before_the_run() {
    for (status, code, part) in [
        (403, "AccessDenied", "may not be listed"),
        (404, "NoSuchBucket", "no such bucket"),
        (301, "PermanentRedirect", "region=eu-west-7"),
        (400, "AuthorizationHeaderMalformed", "region=eu-west-7"),
        (403, "SignatureDoesNotMatch", "does not accept the credentials"),
        (501, "NotImplemented", "501 NotImplemented"),
    ] {
        let server = Server::start();
        server.fail(move |_| Some(Fault::Refuse(status, code, String::new())));
        let refusal = refusal(&server);
        assert!(refusal.contains(part) && !refusal.contains("canary"), "{code}: {refusal}");
    }
}

/// A listing that is denied in the middle parks its shard: the run ends incomplete, never clean.
#[test]
fn a_listing_that_is_denied_is_no_end() {
    let server = Server::start();
    (0..1500).for_each(|number| server.put(format!("k{number:04}"), ""));
    server.fail(|seen| {
        let is_second = seen.query.contains_key("start-after");
        is_second.then(|| Fault::Refuse(403, "AccessDenied", String::new()))
    });
    let error = keys(&*open(&server)).unwrap_err();
    assert_eq!(error, PageError::Connector(ConnectorError::PermissionDenied));
}

#[test]
fn missing_credentials_name_the_places_that_were_tried() {
    let server = Server::start();
    let environment = BucketEnvironment::from_lookup(|name| match name {
        "HOME" => Some("/nowhere".to_owned()),
        "AWS_EC2_METADATA_DISABLED" => Some("true".to_owned()),
        _ => None,
    });
    let refusal = Buckets::new(environment).resolve(&name(&server, "")).unwrap_err().to_string();
    for part in ["AWS_ACCESS_KEY_ID", "shared files", "container", "instance metadata"] {
        assert!(refusal.contains(part), "{refusal}");
    }
    assert!(server.take_seen().is_empty());
    let anonymous = format!("{}&anonymous=yes", name(&server, "").to_str().unwrap());
    Buckets::default().resolve(OsStr::new(&anonymous)).unwrap();
    assert!(!server.take_seen()[0].headers.contains_key("authorization"));
}

#[test]
fn expired_credentials_are_fetched_again() {
    let server = Server::start();
    server.put("a", "body");
    let port = server.port;
    let environment = BucketEnvironment::from_lookup(|name| match name {
        "AWS_CONTAINER_CREDENTIALS_FULL_URI" => Some(format!("http://127.0.0.1:{port}/keys")),
        "AWS_CONTAINER_AUTHORIZATION_TOKEN" => Some("secret".to_owned()),
        _ => None,
    });
    let fetched = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&fetched);
    server.fail(move |seen| {
        if seen.path == "/keys" {
            assert_eq!(seen.headers["authorization"], "secret");
            counted.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        let is_old = counted.load(Ordering::Relaxed) < 2;
        is_old.then(|| Fault::Refuse(400, "ExpiredToken", String::new()))
    });
    let connector = Buckets::new(environment).open(&name(&server, "")).unwrap();
    assert_eq!(keys(&*connector).unwrap(), [b"a"]);
    assert_eq!(fetched.load(Ordering::Relaxed), 2);
}

#[test]
fn the_clock_of_the_server_is_used_once_it_disagrees() {
    let server = Server::start();
    server.put("a", "body");
    server.fail(|seen| {
        let is_new = seen.headers["x-amz-date"].starts_with("20401");
        let date = "Date: Sat, 13 Oct 2040 11:00:00 GMT\r\n".to_owned();
        (!is_new).then_some(Fault::Refuse(403, "RequestTimeTooSkewed", date))
    });
    assert_eq!(keys(&*open(&server)).unwrap(), [b"a"]);
    assert_eq!(server.take_seen().len(), 2);
}

#[test]
fn a_sample_takes_few_requests_and_is_spread() {
    let server = Server::start();
    for number in 0..20_000_u32 {
        // Most of them below one prefix, of which nothing is known.
        let part = if number % 10 < 7 { "m/long/common/" } else { "" };
        server.put(format!("data/{part}{:08x}", number.wrapping_mul(2_654_435_761)), "");
    }
    let connector = open(&server);
    server.take_seen();
    let mut sample = Page::with_limits(PageLimits::try_new(200, 64 * 1024).unwrap());
    connector.sample_keys(WHOLE, &mut sample).unwrap();
    let seen = server.take_seen();
    assert!(seen.len() <= 65, "{} requests", seen.len());
    assert!(seen.iter().skip(1).all(|seen| *seen.query["max-keys"] == *b"1"));
    assert!(seen.iter().all(|seen| !seen.query.contains_key("delimiter")));
    assert!(sample.len() >= 10 && !sample.is_exhausted(), "{} keys", sample.len());
    let below = sample.items().filter(|item| item.key().starts_with(b"data/m")).count();
    assert!(below >= 1 && below < sample.len(), "{below} of {}", sample.len());
}

#[test]
fn errors_and_debug_show_no_secret() {
    let shown = format!("{:?} {:?}", environment(), Buckets::new(environment()));
    assert!(!shown.contains("canary"), "{shown}");
}
