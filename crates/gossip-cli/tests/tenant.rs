//! `gossip tenant limit`: the operator's allotment of a tenant.
#![expect(clippy::unwrap_used, reason = "a file of tests")]

mod support;

use gossip_testkit::test_support::EtcdServer;
use serde_json::{Value, json};

use support::{Ran, Scratch, finish};

/// Runs the binary on the store of `url`.
fn run(scratch: &Scratch, url: &str, args: &[&str]) -> Ran {
    let mut command = scratch.gossip(args);
    command.env("GOSSIP_STORE", url);
    finish(command.spawn().unwrap())
}

/// The output of `tenant limit` with further arguments.
fn limit(scratch: &Scratch, url: &str, args: &[&str]) -> Value {
    let ran = run(scratch, url, &[&["tenant", "limit", "-o", "jsonl"], args].concat());
    assert_eq!(ran.code, Some(0), "{ran:?}");
    serde_json::from_str(&ran.stdout).unwrap()
}

fn check(url: &str, scratch: &Scratch) {
    let create = ["run", "create", "range:0..100", "--shards", "4", "--", "true"];
    assert_eq!(run(scratch, url, &create).code, Some(0));
    let usual = json!({
        "tenant": "default", "shards": 4, "max_shards": 100_000, "is_default": true,
    });
    assert_eq!(limit(scratch, url, &[]), usual);

    let five = json!({
        "tenant": "default", "shards": 4, "max_shards": 5, "is_default": false,
    });
    assert_eq!(limit(scratch, url, &["--shards", "5"]), five);
    assert_eq!(limit(scratch, url, &["default"]), five, "it is stored");
    let other = [&create[..2], &["range:0..200", "--shards", "4", "--", "true"]].concat();
    let refused = run(scratch, url, &other);
    assert_ne!(refused.code, Some(0), "{refused:?}");
    assert!(refused.stderr.contains("limit"), "{refused:?}");
    // Another tenant has its own allotment.
    assert_eq!(limit(scratch, url, &["team"])["is_default"], true);
    let allowed = run(scratch, url, &[&["--tenant", "team"], &other[..]].concat());
    assert_eq!(allowed.code, Some(0), "{allowed:?}");
    let team = json!({ "tenant": "team", "shards": 4, "max_shards": 100_000, "is_default": true });
    assert_eq!(limit(scratch, url, &["--tenant", "team"]), team);

    // An allotment below the present number deletes nothing.
    let ran = run(scratch, url, &["tenant", "limit", "--shards", "0"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(ran.stderr.contains("keeps its 4 shards"), "{ran:?}");
    assert_eq!(limit(scratch, url, &["--shards", "default"]), usual);
}

#[test]
fn limit_is_shown_and_set_in_a_file() {
    let scratch = Scratch::new();
    check(&format!("sqlite:{}", scratch.store().display()), &scratch);
}

#[test]
fn limit_is_shown_and_set_in_a_cluster() {
    let (scratch, etcd) = (Scratch::new(), EtcdServer::single());
    check(&format!("etcd://127.0.0.1:{}/limits", etcd.client_port()), &scratch);
}

#[test]
fn invalid_limits_are_refused_with_the_accepted_form() {
    let scratch = Scratch::new();
    for shards in ["", "-1", "+1", "1.5", "many", "99999999999999999999"] {
        let ran = scratch.run(&["tenant", "limit", &format!("--shards={shards}")]);
        assert_eq!(ran.code, Some(2), "{ran:?}");
        assert!(ran.stderr.contains("a number of shards, or default"), "{ran:?}");
    }
    let long = scratch.run(&["tenant", "limit", &"x".repeat(33)]);
    assert_eq!(long.code, Some(2), "{long:?}");
    let missing = scratch.run(&["--store", "sqlite:missing.db", "tenant", "limit"]);
    assert_eq!(missing.code, Some(5), "{missing:?}");
}
