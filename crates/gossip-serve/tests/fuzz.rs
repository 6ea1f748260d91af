//! Mutated requests to every route: no answer is 5xx, and nothing panics.
//!
//! The seed is fixed, so that a failure can be repeated. It runs for two seconds, or for as many as
//! `GOSSIP_FUZZ_SECONDS` says.
#![allow(clippy::unwrap_used, reason = "all of it is test code")]

mod support;

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use self::support::{Directory, OPERATOR, READER, Reply, Served, parse, start};

const SEED: u64 = 0x676f_7373_6970;
const CLIENTS: u64 = 4;

const ROUTES: [&str; 20] = [
    "/",
    "/runs",
    "/runs/RUN",
    "/workers",
    "/store",
    "/assets/app.js",
    "/metrics",
    "/nothing",
    "/api/v1/session",
    "/api/v1/runs",
    "/api/v1/runs/RUN",
    "/api/v1/runs/RUN/history",
    "/api/v1/runs/RUN/failures",
    "/api/v1/runs/RUN/events",
    "/api/v1/runs/RUN/certificate",
    "/api/v1/runs/RUN/verification",
    "/api/v1/workers",
    "/api/v1/stream",
    "/api/v1/actions",
    "/api/v1/openapi.json",
];

const METHODS: [&str; 12] =
    ["GET", "GET", "GET", "GET", "GET", "GET", "HEAD", "POST", "OPTIONS", "PUT", "DELETE", "get"];
const NAMES: [&str; 8] =
    ["limit", "cursor", "status", "text", "run", "last_event_id", "token", "unknown"];
const VALUES: [&str; 16] = [
    "",
    "0",
    "1",
    "100",
    "-1",
    "18446744073709551616",
    "RUN",
    "RUN,RUN",
    "ffffffffffffffff",
    "NEXT",
    "EPOCHffffffffffffffff",
    "EPOCH0",
    "p0000000000000000",
    "u0-0",
    "%00%ff",
    "done,active",
];
const VERBS: [&str; 9] =
    ["pause", "resume", "cancel", "retry", "unpark", "split", "handoff", "release", "explode"];
const HEADERS: [&str; 14] = [
    "Content-Type: application/json",
    "Content-Type: text/plain",
    "Origin: http://HOST",
    "Origin: null",
    "Sec-Fetch-Site: same-origin",
    "Sec-Fetch-Site: cross-site",
    "Last-Event-ID: EPOCHffffffffffffffff",
    "Idempotency-Key: one",
    "Idempotency-Key: \u{fc}",
    "X-Forwarded-Proto: https",
    "Cookie: gossip_1=x; ; =",
    "Accept-Encoding: gzip",
    "Expect: 100-continue",
    "Range: bytes=5-1",
];

/// A random number generator that is the same everywhere (splitmix64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, limit: usize) -> usize {
        usize::try_from(self.next() % limit as u64).unwrap()
    }

    fn pick<'a>(&mut self, among: &[&'a str]) -> &'a str {
        among[self.below(among.len())]
    }

    /// Returns true once in so many times.
    fn once_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }
}

/// What requests are made of.
struct Facts {
    host: String,
    runs: Vec<String>,
    shards: Vec<String>,
    cursors: Vec<String>,
    epoch: String,
}

impl Facts {
    fn of(served: &Served) -> Self {
        let listed = served
            .until("/api/v1/runs", |reply| {
                let runs = reply.json()["runs"].as_array().cloned().unwrap_or_default();
                runs.len() == 3 && runs.iter().all(|run| run["is_read"] == true)
            })
            .json();
        let text = |value: &serde_json::Value| value.as_str().unwrap().to_owned();
        let runs: Vec<String> =
            listed["runs"].as_array().unwrap().iter().map(|run| text(&run["run"])).collect();
        let (mut shards, mut cursors) = (Vec::new(), Vec::new());
        for run in &runs {
            let page = served.get(&format!("/api/v1/runs/{run}/failures?limit=1")).json();
            shards.push(text(&page["failures"][0]["shard"]));
            cursors.push(text(&page["next"]));
            let page = served.get(&format!("/api/v1/runs/{run}/events?limit=1")).json();
            cursors.push(text(&page["next"]));
        }
        cursors.push(text(&served.get("/api/v1/runs?limit=1").json()["next"]));
        let hello = send(served, &request(&served.host(), "GET", "/api/v1/stream", "", "")).body;
        let id = hello.split("id: ").nth(1).unwrap();
        Self { host: served.host(), runs, shards, cursors, epoch: id[..16].to_owned() }
    }

    /// Replaces the names of facts in a template.
    fn fill(&self, random: &mut Random, template: &str) -> String {
        let pick = |random: &mut Random, among: &[String]| among[random.below(among.len())].clone();
        let text = template.replace("RUN", &pick(random, &self.runs));
        let text = text.replace("NEXT", &pick(random, &self.cursors));
        text.replace("EPOCH", &self.epoch).replace("HOST", &self.host)
    }
}

fn request(host: &str, method: &str, target: &str, headers: &str, body: &str) -> Vec<u8> {
    let len = body.len();
    let head = format!("{method} {target} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n");
    // New wrong tokens would be guesses, and after some of them nothing is looked at any more.
    let token = if headers.contains("Authorization") { "" } else { OPERATOR };
    let token = match token {
        "" => String::new(),
        token => format!("Authorization: Bearer {token}\r\n"),
    };
    format!("{head}{token}{headers}Content-Length: {len}\r\n\r\n{body}").into_bytes()
}

/// Changes some bytes.
fn mutate(random: &mut Random, bytes: &mut Vec<u8>) {
    const BYTES: &[u8] = b"\0\r\n \t%/?&=:,;\"'\\{}[]<>-+#\x7f\x80\xff0af";
    for _ in 0..=random.below(3) {
        let at = random.below(bytes.len() + 1);
        let byte = BYTES[random.below(BYTES.len())];
        match random.below(5) {
            0 => bytes.insert(at, byte),
            1 if at < bytes.len() => drop(bytes.remove(at)),
            2 if at < bytes.len() => bytes[at] = byte,
            3 if at < bytes.len() => bytes[at] ^= 1 << random.below(8),
            4 => {
                let piece = bytes[at..(at + random.below(20)).min(bytes.len())].to_vec();
                bytes.splice(at..at, piece.repeat(1 + random.below(40)));
            }
            _ => bytes.truncate(at),
        }
    }
}

fn body(random: &mut Random, facts: &Facts) -> String {
    let shard = facts.shards[random.below(facts.shards.len())].clone();
    match random.below(8) {
        0 => String::new(),
        1 => "[".repeat(10_000),
        2 => format!("{{\"token\":\"{OPERATOR}\"}}"),
        3 => "{\"token\":\"wrong-token-of-the-test\"}".to_owned(),
        _ => {
            let mut fields = vec![format!("\"action\":\"{}\"", random.pick(&VERBS))];
            fields.push(facts.fill(random, "\"run\":\"RUN\""));
            if !random.once_in(3) {
                fields.push(format!("\"shard\":\"{shard}\""));
            }
            if random.once_in(3) {
                let value = random.pick(&VALUES);
                fields.push(facts.fill(random, &format!("\"to\":\"{value}\"")));
            }
            // A change waits for the pace of the store.
            if !random.once_in(8) {
                fields.push("\"dry_run\":true".to_owned());
            }
            format!("{{{}}}", fields.join(","))
        }
    }
}

/// Makes a request to this route.
fn make(random: &mut Random, facts: &Facts, route: &str) -> Vec<u8> {
    let mut target = facts.fill(random, route);
    let names = random.below(4);
    for number in 0..names {
        let (name, value) = (random.pick(&NAMES), random.pick(&VALUES));
        let value = facts.fill(random, value);
        target += &format!("{}{name}={value}", if number == 0 { '?' } else { '&' });
    }
    if random.once_in(3) {
        let mut bytes = target.into_bytes();
        mutate(random, &mut bytes);
        bytes.retain(|byte| !b" \r\n\0".contains(byte));
        target = String::from_utf8_lossy(&bytes).into_owned();
    }
    let mut headers = String::new();
    for _ in 0..random.below(4) {
        let header = random.pick(&HEADERS);
        headers += &format!("{}\r\n", facts.fill(random, header));
    }
    let is_post = route.ends_with("actions") || route.ends_with("session");
    let method = match is_post && !random.once_in(4) {
        true => {
            headers += "Content-Type: application/json\r\n";
            "POST"
        }
        false => random.pick(&METHODS),
    };
    match random.below(8) {
        0 => headers += &format!("Authorization: Bearer {READER}\r\n"),
        1 => headers += "Authorization: Bearer wrong-token-of-the-test\r\n",
        _ => {}
    }
    let mut text = body(random, facts);
    if random.once_in(4) {
        let mut bytes = text.into_bytes();
        mutate(random, &mut bytes);
        text = String::from_utf8_lossy(&bytes).into_owned();
    }
    let mut bytes = request(&facts.host, method, &target, &headers, &text);
    if random.once_in(10) {
        // Not the token: it must stay right.
        let at = bytes.windows(4).position(|it| it == b"\r\n\r\n").unwrap_or(0);
        let mut rest = bytes.split_off(at);
        mutate(random, &mut rest);
        bytes.extend(rest);
    }
    bytes
}

/// Sends a request and returns its answer; of a stream the beginning.
fn send(served: &Served, request: &[u8]) -> Reply {
    let mut stream = served.connect();
    // The server may have answered and closed before it has read all.
    drop(stream.write_all(request));
    let (mut bytes, mut chunk) = (Vec::new(), [0; 8_192]);
    loop {
        match stream.read(&mut chunk) {
            Ok(0) | Err(_) => break,
            Ok(len) => bytes.extend_from_slice(&chunk[..len]),
        }
        let text = String::from_utf8_lossy(&bytes);
        if text.contains("text/event-stream") && text.contains("data: ") {
            break;
        }
    }
    parse(&String::from_utf8_lossy(&bytes))
}

#[test]
fn mutated_requests_cause_neither_5xx_nor_a_panic() {
    let panics = Arc::new(AtomicU64::new(0));
    let seen = Arc::clone(&panics);
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        seen.fetch_add(1, Ordering::SeqCst);
        before(info);
    }));
    let directory = Directory::new();
    for source in ["range:0..100", "range:0..200", "range:0..300"] {
        directory.work(source, &[3, 50, 77]);
    }
    let served = start(&directory.url(), |options| {
        let limits = &mut options.limits;
        (limits.requests_per_second, limits.requests_at_once) = (1_000_000, 1_000_000);
        // Of a request whose length was changed the rest never comes.
        (limits.head_time, limits.request_time) = (Duration::from_secs(1), Duration::from_secs(5));
    });
    let facts = Facts::of(&served);
    let seconds = std::env::var_os("GOSSIP_FUZZ_SECONDS");
    let seconds = seconds.map(|text| text.to_str().unwrap().parse().unwrap());
    let until = Instant::now() + Duration::from_secs(seconds.unwrap_or(2));
    let (sent, statuses) = (AtomicU64::new(0), Mutex::new(BTreeMap::new()));
    std::thread::scope(|scope| {
        for client in 0..CLIENTS {
            let (served, facts, sent, statuses) = (&served, &facts, &sent, &statuses);
            scope.spawn(move || {
                let mut random = Random(SEED + client);
                for route in ROUTES.iter().cycle() {
                    let request = make(&mut random, facts, route);
                    let reply = send(served, &request);
                    let shown = String::from_utf8_lossy(&request);
                    assert!(reply.status < 500, "client {client}: {shown}\n{reply:?}");
                    sent.fetch_add(1, Ordering::Relaxed);
                    *statuses.lock().unwrap().entry(reply.status).or_insert(0_u64) += 1;
                    // Every route at least once.
                    if Instant::now() > until && sent.load(Ordering::Relaxed) > 200 {
                        return;
                    }
                }
            });
        }
    });
    let (sent, statuses) = (sent.into_inner(), statuses.into_inner().unwrap());
    println!("{sent} requests, by status: {statuses:?}");
    // Otherwise a check in front would have kept them from the handlers.
    let passed = statuses.get(&200).copied().unwrap_or(0);
    assert!(passed * 10 > sent, "{passed} of {sent} requests were answered with 200");
    assert_eq!(panics.load(Ordering::SeqCst), 0, "something panicked");
    let metrics = served.get("/metrics").body;
    for line in ["gossip_serve_errors_total 0", "gossip_serve_panics_total 0"] {
        assert!(metrics.contains(line), "{metrics}");
    }
}
