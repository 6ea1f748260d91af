//! A bucket as source: a worker that is killed, a search for secrets, a bucket that is refused.
#![cfg(feature = "buckets")]
#![allow(clippy::unwrap_used, reason = "all of it is test code")]

mod support;

use std::collections::BTreeSet;
use std::process::Command;

use gossip_testkit::test_support::{S3Server, send_signal};

use support::{Scratch, finish, wait_until};

const OBJECTS: usize = 400;

fn gossip(scratch: &Scratch, server: &S3Server, args: &[&str]) -> Command {
    let mut command = scratch.gossip(args);
    let (id, secret) = server.access_key();
    command.env("AWS_ACCESS_KEY_ID", id).env("AWS_SECRET_ACCESS_KEY", secret);
    command.env("AWS_ENDPOINT_URL", server.url());
    // A search for secrets keeps its key there.
    command.env("HOME", scratch.path());
    command
}

#[test]
fn a_killed_worker_over_a_bucket_is_resumed() {
    let (scratch, server) = (Scratch::with_short_leases(), S3Server::start());
    let key = |number: usize| format!("logs/{}/a b+%25 {number}", number % 7);
    let lines = (0..OBJECTS).map(|number| format!("[\"{}\", \"x\"]\n", key(number)));
    server.put(&lines.collect::<String>());
    let note = "sleep 0.005; printf '%s\\n' \"$1\" >> seen";
    let source = "s3://bucket/logs/";
    let args = ["exec", source, "--jobs", "2", "--", "sh", "-c", note, "sh", "{}"];
    let mut child = gossip(&scratch, &server, &args).spawn().unwrap();
    wait_until("some keys", || scratch.lines("seen").len() >= OBJECTS / 4);
    send_signal("KILL", child.id());
    child.wait().unwrap();
    let ran = finish(gossip(&scratch, &server, &args).spawn().unwrap());
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert!(ran.stderr.contains(&format!("complete: {OBJECTS} keys")), "{}", ran.stderr);
    let seen: BTreeSet<String> = scratch.lines("seen").into_iter().collect();
    assert_eq!(seen, (0..OBJECTS).map(key).collect());
    let id = ran.stderr.split("run ").nth(1).unwrap().split(':').next().unwrap();
    let verify = ["run", "verify", id, "--source"];
    let verified = finish(gossip(&scratch, &server, &verify).spawn().unwrap());
    assert_eq!(verified.code, Some(0), "{}{}", verified.stdout, verified.stderr);
}

#[test]
fn objects_are_searched_for_secrets() {
    let (scratch, server) = (Scratch::new(), S3Server::start());
    let token = format!("ghp_{}", "a1B2".repeat(9));
    server.put(&format!("[\"clean\", \"nothing\"]\n[\"dir/leak.txt\", \"token = {token}\"]\n"));
    let args = ["scan", "s3://bucket/", "-o", "jsonl"];
    let ran = finish(gossip(&scratch, &server, &args).spawn().unwrap());
    assert!(ran.stdout.contains("leak.txt"), "{}{}", ran.stdout, ran.stderr);
    assert!(ran.stderr.contains("complete: 2 keys"), "{}", ran.stderr);
}

#[test]
fn a_bucket_that_may_not_be_listed_is_never_clean() {
    let (scratch, server) = (Scratch::new(), S3Server::start());
    let args = ["scan", "s3://bucket/"];
    let mut wrong = gossip(&scratch, &server, &args);
    let ran = finish(wrong.env("AWS_SECRET_ACCESS_KEY", "canary").spawn().unwrap());
    assert_eq!(ran.code, Some(2), "{}{}", ran.stdout, ran.stderr);
    assert!(ran.stderr.contains("does not accept the credentials"), "{}", ran.stderr);
    assert!(!ran.stderr.contains("canary"), "{}", ran.stderr);
    let mut none = gossip(&scratch, &server, &args);
    none.env_remove("AWS_ACCESS_KEY_ID").env("AWS_EC2_METADATA_DISABLED", "true");
    let ran = finish(none.spawn().unwrap());
    assert_eq!(ran.code, Some(2));
    assert!(ran.stderr.contains("tried environment"), "{}", ran.stderr);
}

#[test]
fn a_directory_bucket_is_refused_by_name() {
    let scratch = Scratch::new();
    let args = ["exec", "s3://logs--use1-az4--x-s3/", "--", "true"];
    let ran = finish(scratch.gossip(&args).spawn().unwrap());
    assert_eq!(ran.code, Some(2));
    assert!(ran.stderr.contains("directory bucket"), "{}", ran.stderr);
}
