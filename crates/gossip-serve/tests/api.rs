//! The API on a store in a file, with a run that the library has worked on.
#![allow(clippy::unwrap_used, reason = "all of it is test code")]

mod support;

use std::collections::BTreeSet;
use std::io::{Read as _, Write as _};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use gossip::coordination::protocol::ReleaseMode;
use gossip::coordination::store::{Answer, Key, Read, Store as _, Txn};
use gossip::coordination::{AcquireScratch, CoordinationBackend as _, Lease};
use gossip::identity::{OpId, RunId, ShardId, ShardKey, WorkerId};
use gossip::runtime::{Clock as _, SystemClock};
use gossip::store::{Backend, Coordinator};
use serde_json::Value;

use self::support::{Directory, OPERATOR, Served, TestAccess, start, start_on};

/// Returns the id of the only run, once its shards are read.
fn only_run(served: &Served) -> String {
    let reply = served.until("/api/v1/runs", |reply| {
        reply.status == 200 && reply.json()["runs"][0]["is_read"] == true
    });
    reply.json()["runs"][0]["run"].as_str().unwrap().to_owned()
}

#[test]
fn run_is_shown_in_buckets_with_counts() {
    let directory = Directory::new();
    directory.work("range:0..1000", &[]);
    let served = directory.serve();
    let run = only_run(&served);
    let shown = served.get(&format!("/api/v1/runs/{run}")).json();
    assert_eq!(shown["status"], "done");
    assert_eq!((&shown["keys"], &shown["fraction"]), (&1_000.into(), &1.0.into()));
    assert_eq!(shown["cells"], serde_json::json!([[512, "done", null, 100]]));
    let history = served.get(&format!("/api/v1/runs/{run}/history")).json();
    assert_eq!(
        (&history["buckets"], history["columns"].as_array().unwrap().len()),
        (&512.into(), 1)
    );
    assert_eq!(history["columns"][0]["keys"], 1_000);
    for status in ["done", "done,active"] {
        let found = served.get(&format!("/api/v1/runs?status={status}&text=range:0")).json();
        assert_eq!(found["runs"].as_array().unwrap().len(), 1);
    }
    assert_eq!(served.get("/api/v1/runs?status=active").json()["runs"], serde_json::json!([]));
}

#[test]
fn runs_are_paged_newest_first_and_each_once() {
    let directory = Directory::new();
    for number in 1..=5 {
        directory.work(&format!("range:0..{number}"), &[]);
    }
    let served = directory.serve();
    served.until("/api/v1/runs", |reply| {
        reply.json()["runs"].as_array().is_some_and(|runs| runs.len() == 5)
    });
    let (mut seen, mut query) = (Vec::new(), String::new());
    loop {
        let page = served.get(&format!("/api/v1/runs?limit=2{query}")).json();
        let sources = page["runs"].as_array().unwrap().iter();
        seen.extend(sources.map(|run| run["source"].as_str().unwrap().to_owned()));
        match page["next"].as_str() {
            Some(next) => query = format!("&cursor={next}"),
            None => break,
        }
    }
    let expected: Vec<_> =
        (1..=5).rev().map(|number| format!("range:0..={}", number - 1)).collect();
    assert_eq!(seen, expected);
}

#[test]
fn failures_are_paged_and_retried_once_for_each_key() {
    let directory = Directory::new();
    directory.work("range:0..100", &[3, 50, 77]);
    let served = directory.serve();
    let run = only_run(&served);
    assert_eq!(served.get(&format!("/api/v1/runs/{run}")).json()["status"], "incomplete");
    let (mut items, mut shards, mut query) = (BTreeSet::new(), Vec::new(), String::new());
    loop {
        let page = served.get(&format!("/api/v1/runs/{run}/failures?limit=1{query}")).json();
        assert_eq!(page["failed"], 3);
        for failure in page["failures"].as_array().unwrap() {
            assert!(failure["message"].as_str().unwrap().contains("bad one"), "{failure}");
            items.insert(failure["item"].as_str().unwrap().to_owned());
            shards.push(failure["shard"].as_str().unwrap().to_owned());
        }
        match page["next"].as_str() {
            Some(next) => query = format!("&cursor={next}"),
            None => break,
        }
    }
    assert_eq!(items, ["3", "50", "77"].map(str::to_owned).into());
    let retry = format!(r#"{{"action":"retry","run":"{run}","shard":"{}"}}"#, shards[0]);
    let key = [("Idempotency-Key", "one")];
    let first = served.post("/api/v1/actions", &key, &retry).json();
    assert_eq!(first["is_replay"], false, "{first}");
    assert_eq!(first["command"], format!("gossip shard unpark {run} {}", shards[0]));
    let again = served.post("/api/v1/actions", &key, &retry).json();
    assert_eq!(again["is_replay"], true, "{again}");
    let other = served.post("/api/v1/actions", &[], &retry);
    assert_eq!((other.status, other.code().as_str()), (409, "not_parked"));
    let all = format!(r#"{{"action":"retry","run":"{run}"}}"#);
    let all = served.post("/api/v1/actions", &[], &all).json();
    assert!(all["message"].as_str().unwrap().starts_with("2 shards"), "{all}");
    served.until(&format!("/api/v1/runs/{run}"), |reply| reply.json()["shards"]["parked"] == 0);
}

/// Acquires a shard, as a worker does.
fn acquire(directory: &Directory, run: &str, shard: &str) -> (Coordinator, Lease) {
    acquire_at(directory, run, shard, 5, 0)
}

/// Acquires a shard as this worker, so many milliseconds from now.
fn acquire_at(
    directory: &Directory,
    run: &str,
    shard: &str,
    worker: u64,
    after: u64,
) -> (Coordinator, Lease) {
    let backend = Backend::open(&directory.url().parse().unwrap()).unwrap();
    let mut coordinator = backend.coordinator();
    let number = |text: &str| u64::from_str_radix(text, 16).unwrap();
    let key = ShardKey::new(RunId::from_raw(number(run)), ShardId::from_raw(number(shard)));
    let (tenant, worker) = (gossip::tenant_id("default").unwrap(), WorkerId::from_raw(worker));
    let now = SystemClock::new().now().saturating_add(after);
    let mut scratch = AcquireScratch::default();
    let acquired = coordinator.acquire_and_restore_into(now, tenant, key, worker, &mut scratch);
    let lease = acquired.unwrap().lease;
    (coordinator, lease)
}

#[test]
fn repeated_request_is_answered_as_the_first_time_and_executed_once() {
    let directory = Directory::new();
    directory.work("range:0..100", &[3, 50]);
    let served = directory.serve();
    let run = only_run(&served);
    let tenant = gossip::tenant_id("default").unwrap();
    let page = served.get(&format!("/api/v1/runs/{run}/failures")).json();
    let shard = page["failures"][0]["shard"].as_str().unwrap();
    let key = [("Idempotency-Key", "one")];

    let all = format!(r#"{{"action":"retry","run":"{run}"}}"#);
    let first = served.post("/api/v1/actions", &key, &all).json();
    let again = served.post("/api/v1/actions", &key, &all).json();
    assert!(first["message"].as_str().unwrap().starts_with("2 shards"), "{first}");
    assert_eq!((&again["message"], &again["is_replay"]), (&first["message"], &true.into()));

    let (mut holder, lease) = acquire(&directory, &run, shard);
    for verb in ["split", "handoff", "release"] {
        let body = format!(r#"{{"action":"{verb}","run":"{run}","shard":"{shard}"}}"#);
        let first = served.post("/api/v1/actions", &key, &body);
        if verb != "split" {
            // Until the holder has received the other one.
            assert_eq!(first.code(), "request_pending", "{first:?}");
            continue;
        }
        assert_eq!(first.json()["is_replay"], false, "{first:?}");
        let again = served.post("/api/v1/actions", &key, &body).json();
        assert_eq!(again["is_replay"], true, "{again}");
        let now = SystemClock::new().now();
        assert!(holder.renew(now, tenant, &lease).unwrap().request.is_some());
    }
    let now = SystemClock::new().now();
    let op_id = OpId::from_raw(77);
    assert!(holder.release(now, tenant, &lease, ReleaseMode::Clean, op_id).is_ok());
    drop(holder);
    // The request ended with the lease. A late repetition does not reach the next holder.
    let (mut holder, lease) = acquire(&directory, &run, shard);
    let body = format!(r#"{{"action":"split","run":"{run}","shard":"{shard}"}}"#);
    assert_eq!(served.post("/api/v1/actions", &key, &body).json()["is_replay"], true);
    let now = SystemClock::new().now();
    assert!(holder.renew(now, tenant, &lease).unwrap().request.is_none());
    // A refused change may be tried again with its key; other parameters are another change.
    let to = |to: u64| {
        let shard = format!(r#""run":"{run}","shard":"{shard}","to":"{to:016x}""#);
        served.post("/api/v1/actions", &key, &format!(r#"{{"action":"handoff",{shard}}}"#))
    };
    assert_eq!(to(9).json()["is_replay"], false);
    assert_eq!(to(10).code(), "idempotency_conflict");
}

#[test]
fn run_is_paused_resumed_and_cancelled() {
    let directory = Directory::new();
    directory.work("range:0..100", &[3]);
    let served = directory.serve();
    let run = only_run(&served);
    let act = |action: &str| {
        let body = format!(r#"{{"action":"{action}","run":"{run}"}}"#);
        served.post("/api/v1/actions", &[], &body)
    };
    let becomes = |status: &str| {
        served.until(&format!("/api/v1/runs/{run}"), |reply| reply.json()["status"] == *status);
    };
    let dry = format!(r#"{{"action":"pause","run":"{run}","dry_run":true}}"#);
    let dry = served.post("/api/v1/actions", &[], &dry).json();
    assert_eq!(dry["command"], format!("gossip run pause {run}"));
    becomes("incomplete");
    assert_eq!(act("pause").status, 200);
    becomes("paused");
    assert_eq!(act("resume").status, 200);
    becomes("incomplete");
    assert_eq!(act("cancel").status, 200);
    becomes("cancelled");
    assert_eq!(act("pause").code(), "run_over");
    let shard = format!(r#"{{"action":"split","run":"{run}"}}"#);
    assert_eq!(served.post("/api/v1/actions", &[], &shard).code(), "invalid_parameter");
}

#[test]
fn events_are_paged_newest_first_and_each_once() {
    let directory = Directory::new();
    directory.work("range:0..1000", &[3, 50, 77]);
    // It has not seen any of them.
    let served = directory.serve();
    let run = only_run(&served);
    let path = format!("/api/v1/runs/{run}/events");
    let (mut ids, mut kinds, mut query) = (Vec::new(), BTreeSet::new(), String::new());
    loop {
        let page = served.get(&format!("{path}?limit=3{query}")).json();
        assert_eq!((&page["lost"], &page["is_complete"]), (&0.into(), &true.into()));
        let events = page["events"].as_array().unwrap();
        assert!(events.len() <= 3, "{page}");
        for event in events {
            ids.push(event["id"].as_str().unwrap().to_owned());
            kinds.insert(event["event"].as_str().unwrap().to_owned());
            assert!(event["at"].as_u64().unwrap() > 0, "{event}");
        }
        match page["next"].as_str() {
            Some(next) => query = format!("&cursor={next}"),
            None => break,
        }
    }
    assert!(ids.is_sorted_by(|one, other| one > other) && ids.len() > 6, "{ids:?}");
    for kind in ["run_created", "run_active", "acquired", "parked", "done"] {
        assert!(kinds.contains(kind), "{kind}: {kinds:?}");
    }
    for wrong in ["limit=0", "limit=501", "limit=x", "cursor=1-2-3", "cursor=", "other=1"] {
        let refused = served.get(&format!("{path}?{wrong}"));
        assert_eq!(refused.code(), "invalid_parameter", "{wrong}");
    }
}

#[test]
fn leases_that_changed_hands_before_the_server_started_are_marked() {
    let directory = Directory::new();
    directory.work("range:0..100", &[3]);
    let (run, shard) = {
        let served = directory.serve();
        let run = only_run(&served);
        let page = served.get(&format!("/api/v1/runs/{run}/failures")).json();
        let shard = page["failures"][0]["shard"].as_str().unwrap().to_owned();
        let retry = format!(r#"{{"action":"retry","run":"{run}"}}"#);
        assert_eq!(served.post("/api/v1/actions", &[], &retry).status, 200);
        (run, shard)
    };
    let first = acquire_at(&directory, &run, &shard, 5, 0);
    // Its lease has run out by then.
    let second = acquire_at(&directory, &run, &shard, 6, 3_600_000);
    let served = directory.serve();
    let shown = served.until(&format!("/api/v1/runs/{run}"), |reply| reply.status == 200).json();
    let mark = &shown["marks"][0];
    assert_eq!((&mark["kind"], &mark["shard"]), (&"takeover".into(), &shard.into()), "{shown}");
    drop((first, second));
}

#[test]
fn lost_store_is_reported_and_read_again_later() {
    let directory = Directory::new();
    directory.work("range:0..10", &[]);
    let served = directory.serve();
    let run = only_run(&served);
    served.is_broken.store(true, Ordering::SeqCst);
    let lost = served.until("/api/v1/store", |reply| reply.json()["is_readable"] == false);
    assert!(lost.json()["error"].as_str().unwrap().contains("the test broke it"));
    // Still shown as it was read.
    assert_eq!(served.get(&format!("/api/v1/runs/{run}")).json()["keys"], 10);
    served.is_broken.store(false, Ordering::SeqCst);
    served.until("/api/v1/store", |reply| reply.json()["is_readable"] == true);
    directory.work("range:0..20", &[]);
    served.until("/api/v1/runs", |reply| {
        reply.json()["runs"].as_array().is_some_and(|runs| runs.len() == 2)
    });
}

/// Changes a byte of the stored head of a run.
fn damage_head(directory: &Directory, run: &str) {
    let backend = Backend::open(&directory.url().parse().unwrap()).unwrap();
    let mut store = backend.store();
    let tenant = gossip::tenant_id("default").unwrap();
    let run = RunId::from_raw(u64::from_str_radix(run, 16).unwrap());
    let key = Key::RunHead { tenant, run };
    let read = store.read(vec![Read::Get(key)]).unwrap().remove(0);
    let Answer::Value(Some(head)) = read else { panic!("no head") };
    let mut bytes = head.bytes.to_vec();
    *bytes.last_mut().unwrap() ^= 1;
    let mut txn = Txn::new();
    txn.put(key, bytes);
    assert!(store.commit(vec![txn]).remove(0).is_ok());
}

#[test]
fn damaged_run_is_shown_as_unreadable_and_hides_no_other() {
    let directory = Directory::new();
    directory.work("range:0..100", &[3]);
    let served = directory.serve();
    let run = only_run(&served);
    let path = format!("/api/v1/runs/{run}");
    damage_head(&directory, &run);
    let refused = served.until(&path, |reply| reply.code() == "run_unreadable");
    assert_eq!(refused.status, 409);
    assert!(refused.body.contains(&format!("gossip run rm {run} --damaged")), "{refused:?}");
    let listed = served.get("/api/v1/runs").json();
    assert_eq!(listed["runs"][0]["status"], "unreadable", "{listed}");
    assert_eq!(served.get(&format!("{path}/failures")).code(), "run_unreadable");
    // Neither does it take the turns of others, although a client looks at it all the time.
    directory.work("range:0..20", &[]);
    let other = served.until("/api/v1/runs?text=range:0..=19", |reply| {
        assert_eq!(served.get(&path).code(), "run_unreadable");
        reply.json()["runs"][0]["is_read"] == true
    });
    assert_eq!(other.json()["runs"][0]["keys"], 20);
    let store = served.until("/api/v1/store", |reply| {
        reply.json()["warnings"][0].as_str().is_some_and(|it| it.contains("damaged"))
    });
    assert_eq!(store.json()["is_readable"], true, "{store:?}");
    // A server that starts later shows it too.
    drop(served);
    let served = directory.serve();
    served.until(&path, |reply| reply.code() == "run_unreadable");
    served.until("/api/v1/runs?status=done", |reply| reply.json()["runs"][0]["keys"] == 20);
}

#[test]
fn panic_while_a_run_is_read_hides_no_other_and_passes() {
    let directory = Directory::new();
    directory.work("range:0..100", &[3]);
    directory.work("range:0..20", &[]);
    let access = TestAccess::new(&directory.url());
    access.panics.store(true, Ordering::SeqCst);
    let served = start_on(access, |_| {});
    let done = served
        .until("/api/v1/runs?status=done", |reply| reply.json()["runs"][0]["is_read"] == true);
    let listed = served.until("/api/v1/runs?status=unreadable", |reply| {
        reply.json()["runs"][0]["run"].is_string()
    });
    let store = served.until("/api/v1/store", |reply| {
        reply.json()["warnings"][0].as_str().is_some_and(|it| it.contains("reader of the store"))
    });
    assert_eq!(store.json()["is_readable"], true, "{store:?}");
    // The thread that answers requests continues too.
    let run = done.json()["runs"][0]["run"].as_str().unwrap().to_owned();
    for _ in 0..2 {
        let failed = served.get(&format!("/api/v1/runs/{run}/certificate"));
        assert_eq!((failed.status, failed.code().as_str()), (503, "busy"), "{failed:?}");
        assert!(!failed.body.contains("secret") && !store.body.contains("secret"));
    }
    assert_eq!(served.get(&format!("/api/v1/runs/{run}/failures")).status, 200);
    served.until("/api/v1/store", |reply| reply.body.contains("requests to the store: failed"));
    assert!(served.get("/metrics").body.contains("gossip_serve_panics_total"));
    served.panics.store(false, Ordering::SeqCst);
    let run = listed.json()["runs"][0]["run"].as_str().unwrap().to_owned();
    served.until(&format!("/api/v1/runs/{run}"), |reply| reply.json()["status"] == "incomplete");
    let refused = served.get(&format!("/api/v1/runs/{run}/certificate"));
    assert_eq!(refused.code(), "no_certificate");
}

#[test]
fn panic_while_a_lost_store_is_opened_passes() {
    let directory = Directory::new();
    directory.work("range:0..10", &[]);
    let access = TestAccess::new(&directory.url());
    let panics = Arc::clone(&access.panics_at_open);
    let served = start_on(access, |_| {});
    let run = only_run(&served);
    served.is_broken.store(true, Ordering::SeqCst);
    served.until("/api/v1/store", |reply| reply.json()["is_readable"] == false);
    panics.store(true, Ordering::SeqCst);
    served.is_broken.store(false, Ordering::SeqCst);
    served.until("/metrics", |reply| !reply.body.contains("gossip_serve_panics_total 0"));
    assert_eq!(served.get(&format!("/api/v1/runs/{run}")).json()["keys"], 10);
    panics.store(false, Ordering::SeqCst);
    served.until("/api/v1/store", |reply| reply.json()["is_readable"] == true);
}

#[test]
fn unknown_runs_and_shards_are_not_found() {
    let directory = Directory::new();
    directory.work("range:0..10", &[3]);
    let served = directory.serve();
    let run = only_run(&served);
    for path in ["", "/history", "/failures", "/events", "/certificate", "/verification"] {
        let reply = served.get(&format!("/api/v1/runs/1111111111111111{path}"));
        assert_eq!((reply.status, reply.code().as_str()), (404, "run_not_found"), "{path}");
    }
    let body = format!(r#"{{"action":"unpark","run":"{run}","shard":"1111111111111111"}}"#);
    assert_eq!(served.post("/api/v1/actions", &[], &body).code(), "shard_not_found");
}

/// Reads a stream until `wanted` holds, and returns its head and body.
fn stream(served: &Served, query: &str, wanted: impl Fn(&str) -> bool) -> String {
    let mut stream = served.connect();
    let request = format!(
        "GET /api/v1/stream{query} HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {OPERATOR}\r\n\r\n",
        served.host()
    );
    stream.write_all(request.as_bytes()).unwrap();
    let (mut text, mut chunk) = (String::new(), [0; 8_192]);
    let started = Instant::now();
    while !wanted(&text) {
        assert!(started.elapsed() < Duration::from_secs(30), "{text}");
        let len = stream.read(&mut chunk).unwrap();
        assert!(len > 0, "{text}");
        text += &String::from_utf8_lossy(&chunk[..len]);
    }
    text
}

/// Returns the id of the last update in the text of a stream.
fn last_id(text: &str) -> String {
    let id = text.rsplit("id: ").next().unwrap();
    id.split_whitespace().next().unwrap().to_owned()
}

#[test]
fn stream_continues_where_it_was_and_resyncs_where_it_cannot() {
    let directory = Directory::new();
    directory.work("range:0..100", &[3]);
    let served = directory.serve();
    let run = only_run(&served);
    let first = stream(&served, &format!("?run={run}"), |text| {
        text.contains("event: run\n") && text.contains("event: store\n") && text.ends_with("\r\n")
    });
    assert!(first.contains("content-type: text/event-stream"), "{first}");
    assert!(first.contains("x-accel-buffering: no") && first.contains("event: hello\n"));
    assert!(!first.contains("content-encoding"));
    let retry: u64 =
        first.split("retry: ").nth(1).unwrap().lines().next().unwrap().trim().parse().unwrap();
    assert!((2_000..=10_000).contains(&retry));
    let id = last_id(&first);
    // The maps of runs only go to those who look at them.
    let others = stream(&served, "", |text| text.matches("event: store\n").count() == 2);
    assert!(!others.contains("event: run\n"), "{others}");
    let next = stream(&served, &format!("?run={run}&last_event_id={id}"), |text| {
        text.contains("event: run\n")
    });
    assert!(next.contains("event: hello\n") && !next.contains("event: resync"), "{next}");
    assert!(!next.contains(&format!("id: {id}\nevent: run")), "an update came twice");
    // The epoch of this start with the highest number.
    let highest = format!("{}ffffffffffffffff", &id[..16]);
    for stale in ["00000000000000011", "nonsense", &highest] {
        let text =
            stream(&served, &format!("?last_event_id={stale}"), |text| text.contains("event: "));
        assert!(text.contains("event: resync\n"), "{text}");
    }
}

#[test]
fn metrics_are_open_metrics_with_bounded_labels() {
    let directory = Directory::new();
    directory.work("range:0..100", &[3]);
    let served = directory.serve();
    let run = only_run(&served);
    let reply = served.get("/metrics");
    assert!(reply.header("content-type").unwrap().starts_with("application/openmetrics-text"));
    assert!(reply.body.trim_end().ends_with("# EOF"), "{}", reply.body);
    assert!(reply.body.contains(&format!("gossip_run_failed_shards{{run=\"{run}\"}} 1")));
    assert!(reply.body.contains("gossip_runs{status=\"incomplete\"} 1"), "{}", reply.body);
    // Neither the source nor the tenant.
    assert!(!reply.body.contains("range:") && !reply.body.contains("default"));
}

#[test]
fn requests_to_the_store_do_not_depend_on_the_number_of_clients() {
    let directory = Directory::new();
    directory.work("range:0..100", &[3]);
    let served = directory.serve();
    let run = only_run(&served);
    let counted = || served.get("/api/v1/store").json()["requests"].as_u64().unwrap();
    let (before, started) = (counted(), Instant::now());
    std::thread::scope(|scope| {
        for _ in 0..20 {
            scope.spawn(|| {
                for _ in 0..25 {
                    let reply: Value = served.get(&format!("/api/v1/runs/{run}")).json();
                    assert_eq!(reply["keys"], 99);
                    served.get("/api/v1/workers");
                    let events = served.get(&format!("/api/v1/runs/{run}/events"));
                    assert_eq!(events.status, 200, "{events:?}");
                }
            });
        }
    });
    std::thread::sleep(Duration::from_secs(2));
    // The counter is as old as its last update.
    let (after, seconds) = (counted(), started.elapsed().as_secs_f64() + 1.0);
    let rate = (after - before) as f64 / seconds;
    assert!(rate <= 20.0, "{rate} requests per second");
}

#[test]
fn two_hundred_clients_come_back_after_a_restart() {
    let directory = Directory::new();
    directory.work("range:0..100", &[]);
    let open = |served: &Served, query: &str| {
        let mut stream = served.connect();
        let host = served.host();
        let head = format!("GET /api/v1/stream{query} HTTP/1.1\r\nHost: {host}\r\n");
        let head = format!("{head}Authorization: Bearer {OPERATOR}\r\n\r\n");
        stream.write_all(head.as_bytes()).unwrap();
        stream
    };
    let first = |stream: &mut std::net::TcpStream| {
        let (mut text, mut chunk) = (String::new(), [0; 8_192]);
        while !text.contains("event: ") {
            let len = stream.read(&mut chunk).unwrap();
            assert!(len > 0, "{text}");
            text += &String::from_utf8_lossy(&chunk[..len]);
        }
        text
    };
    let served = directory.serve();
    let address = served.address();
    let mut streams: Vec<_> = (0..200).map(|_| open(&served, "")).collect();
    let texts: Vec<_> = streams.iter_mut().map(first).collect();
    assert!(texts.iter().all(|text| text.contains("event: hello")));
    let id = last_id(&texts[0]);
    drop(served);
    let served = start(&directory.url(), |options| options.listen = address);
    let query = format!("?last_event_id={id}");
    let mut streams: Vec<_> = (0..200).map(|_| open(&served, &query)).collect();
    for stream in &mut streams {
        assert!(first(stream).contains("event: resync"));
    }
    let started = Instant::now();
    assert_eq!(served.get("/api/v1/runs").status, 200);
    assert!(started.elapsed() < Duration::from_secs(5));
    drop(streams);
    served.until("/metrics", |reply| reply.body.contains("gossip_serve_streams 0"));
}
