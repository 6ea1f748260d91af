//! Clients that read nothing, send slowly, or come in numbers. The limits are shorter than those of
//! a server, and real connections meet them.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::net::TcpSocket;
use tokio::runtime::Builder;

use crate::ServeLimits;
use crate::support::{self, OPERATOR, Served, start};

fn served(change: impl FnOnce(&mut ServeLimits)) -> Served {
    start("memory:", |options| change(&mut options.limits))
}

/// Waits until a counter of the server has this value.
fn wait_for(counter: &AtomicU64, value: u64) {
    wait_until(counter, |found| found == value);
}

fn wait_until(counter: &AtomicU64, is_reached: impl Fn(u64) -> bool) {
    let started = Instant::now();
    while !is_reached(counter.load(Ordering::SeqCst)) {
        assert!(started.elapsed() < Duration::from_secs(30), "it stays at {counter:?}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn request(served: &Served, path: &str) -> String {
    let host = served.host();
    format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {OPERATOR}\r\n\r\n")
}

/// Opens a stream of updates, and returns the beginning of the answer.
fn stream(served: &Served) -> (TcpStream, String) {
    let mut stream = served.connect();
    stream.write_all(request(served, "/api/v1/stream").as_bytes()).unwrap();
    let mut chunk = [0; 1_024];
    let len = stream.read(&mut chunk).unwrap();
    (stream, String::from_utf8_lossy(&chunk[..len]).into_owned())
}

#[test]
fn stream_that_is_not_read_is_closed() {
    let served = served(|limits| limits.write_time = Duration::from_millis(300));
    let (_unread, head) = stream(&served);
    assert!(head.contains(" 200 "), "{head}");
    let shared = &served.server.shared;
    wait_for(&shared.counters.streams, 1);
    // More than the kernel holds for both ends.
    for _ in 0..40 {
        shared.hub.publish("store", None, &"x".repeat(100_000));
    }
    wait_for(&shared.counters.streams, 0);
    wait_for(&shared.counters.connections, 0);
}

#[test]
fn stream_that_is_read_stays_open_beyond_the_time_of_a_write() {
    let served = served(|limits| limits.write_time = Duration::from_millis(300));
    let (mut read, _) = stream(&served);
    let shared = &served.server.shared;
    let (started, mut chunk, mut count) = (Instant::now(), [0; 8_192], 0);
    while started.elapsed() < Duration::from_secs(1) {
        shared.hub.publish("store", None, "{}");
        let len = read.read(&mut chunk).unwrap();
        assert!(len > 0, "closed after {count} reads");
        count += 1;
    }
    assert_eq!(shared.counters.streams.load(Ordering::SeqCst), 1);
}

#[test]
fn connection_whose_answers_are_not_read_is_closed() {
    let served = served(|limits| limits.write_time = Duration::from_millis(300));
    let mut unread = served.connect();
    let many = request(&served, "/api/v1/openapi.json").repeat(200);
    // It fails when the server has closed.
    drop(unread.write_all(many.as_bytes()));
    let counters = &served.server.shared.counters;
    // Before it is accepted, the connection is not counted either.
    wait_until(&counters.requests, |requests| requests > 0);
    wait_for(&counters.connections, 0);
    assert_eq!(served.get("/api/v1/runs").status, 200);
}

#[test]
fn body_that_trickles_in_is_refused() {
    let served = served(|limits| limits.request_time = Duration::from_millis(500));
    let mut stream = served.connect();
    let head = format!(
        "POST /api/v1/actions HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {OPERATOR}\r\n\
         Content-Type: application/json\r\nContent-Length: 10000\r\n\r\n",
        served.host()
    );
    stream.write_all(head.as_bytes()).unwrap();
    // The time of a read is the interval between two bytes.
    stream.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
    let (started, mut chunk) = (Instant::now(), [0; 4_096]);
    let reply = loop {
        assert!(started.elapsed() < Duration::from_secs(20), "the request is still read");
        drop(stream.write_all(b"x"));
        match stream.read(&mut chunk) {
            Ok(len) => break support::parse(&String::from_utf8_lossy(&chunk[..len])),
            Err(_) => continue,
        }
    };
    assert_eq!((reply.status, reply.code().as_str()), (408, "timeout"), "{reply:?}");
    wait_for(&served.server.shared.counters.connections, 0);
}

#[test]
fn head_that_trickles_in_is_refused() {
    let served = served(|limits| limits.head_time = Duration::from_millis(500));
    let mut stream = served.connect();
    stream.write_all(b"GET / HTTP/1.1\r\nX-Slow: ").unwrap();
    let counters = &served.server.shared.counters;
    wait_for(&counters.connections, 1);
    let started = Instant::now();
    while counters.connections.load(Ordering::SeqCst) > 0 {
        assert!(started.elapsed() < Duration::from_secs(20), "the head is still read");
        drop(stream.write_all(b"x"));
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Opens connections up to a limit of two.
fn two_of_two(change: impl FnOnce(&mut ServeLimits)) {
    let served = served(change);
    let counters = &served.server.shared.counters;
    let held = (served.connect(), served.connect());
    wait_for(&counters.connections, 2);
    let mut third = served.connect();
    let mut rest = Vec::new();
    // Closed at once: not after the time for a head.
    let started = Instant::now();
    assert_eq!(third.read_to_end(&mut rest).unwrap_or(0), 0);
    assert!(started.elapsed() < Duration::from_secs(10));
    assert_eq!(counters.refused_connections.load(Ordering::SeqCst), 1);
    drop(held);
    wait_for(&counters.connections, 0);
    assert_eq!(served.get("/api/v1/runs").status, 200);
}

#[test]
fn connections_beyond_the_limit_are_closed() {
    two_of_two(|limits| limits.connections = 2);
}

#[test]
fn connections_of_one_address_beyond_its_limit_are_closed() {
    two_of_two(|limits| limits.connections_of_loopback = 2);
    // Another address has its own.
    let served = start("memory:", |options| {
        options.listen = "0.0.0.0:0".parse().unwrap();
        options.limits.connections_of_loopback = 2;
    });
    let counters = &served.server.shared.counters;
    let target = SocketAddr::from(([127, 0, 0, 1], served.address().port()));
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    let connect = |from: [u8; 4]| {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind(SocketAddr::from((from, 0))).unwrap();
        runtime.block_on(socket.connect(target)).unwrap()
    };
    let _held = [[127, 0, 0, 1], [127, 0, 0, 1], [127, 0, 0, 2]].map(connect);
    wait_for(&counters.connections, 3);
    assert_eq!(counters.refused_connections.load(Ordering::SeqCst), 0);
}

#[test]
fn streams_beyond_the_limit_are_refused() {
    let served = served(|limits| limits.streams = 2);
    let held = (stream(&served), stream(&served));
    let refused = served.get("/api/v1/stream");
    assert_eq!((refused.status, refused.code().as_str()), (503, "busy"), "{refused:?}");
    drop(held);
    wait_for(&served.server.shared.counters.streams, 0);
    let (_stream, head) = stream(&served);
    assert!(head.contains(" 200 "), "{head}");
}
