//! A server on a store in memory, and a client that sends exactly the bytes of a test.
#![allow(dead_code, reason = "each test uses a part")]
#![allow(clippy::unwrap_used, reason = "all of it is test code")]

use std::collections::BTreeSet;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use gossip::identity::RunId;
use gossip::prelude::*;
use gossip::runtime::{Density, Job};
use gossip::store::{Backend, StoreUrl};
use gossip_serve::{Access, Certificate, Role, ServeLimits, ServeOptions, Server};

/// Token of a client that may look, and of one that may change things.
pub(crate) const READER: &str = "reader-of-the-tests";
pub(crate) const OPERATOR: &str = "operator-of-the-tests";

/// A store that the test can make unreachable.
pub(crate) struct TestAccess {
    pub url: String,
    pub is_broken: Arc<AtomicBool>,
    /// Whether what the server asks for panics.
    pub panics: Arc<AtomicBool>,
    pub panics_at_open: Arc<AtomicBool>,
    /// The store in memory is opened once, and lives as long as the test.
    pub opened: Mutex<u64>,
}

impl Access for TestAccess {
    fn open(&self) -> Result<Backend, String> {
        self.check()?;
        assert!(!self.panics_at_open.load(Ordering::SeqCst), "a secret of the test");
        *self.opened.lock().unwrap() += 1;
        let url: StoreUrl = self.url.parse().map_err(|error| format!("{error}"))?;
        Backend::open(&url).map_err(|error| error.to_string())
    }

    fn place(&self) -> String {
        "test".to_owned()
    }

    fn check(&self) -> Result<(), String> {
        match self.is_broken.load(Ordering::SeqCst) {
            true => Err("the test broke it".to_owned()),
            false => Ok(()),
        }
    }

    fn density(&self, _job: &Job) -> Density {
        assert!(!self.panics.load(Ordering::SeqCst), "a secret of the test");
        Density::default()
    }

    fn command(&self, job: &Job) -> String {
        format!("{:?}", job.command)
    }

    fn certificate(&self, _run: RunId) -> Result<Certificate, String> {
        assert!(!self.panics.load(Ordering::SeqCst), "a secret of the test");
        Err("not in this test".to_owned())
    }
}

/// A server of a test.
pub(crate) struct Served {
    pub server: Server,
    pub is_broken: Arc<AtomicBool>,
    pub panics: Arc<AtomicBool>,
}

/// Settings of the servers of the tests.
pub(crate) fn options() -> ServeOptions {
    ServeOptions {
        listen: "127.0.0.1:0".parse().unwrap(),
        tenant: gossip::tenant_id("default").unwrap(),
        tenant_name: "default".to_owned(),
        read_only: false,
        allow_hosts: vec!["gossip.example".to_owned()],
        tokens: vec![(Role::Read, READER.to_owned()), (Role::Operate, OPERATOR.to_owned())],
        version: "test".to_owned(),
        limits: ServeLimits::default(),
    }
}

impl TestAccess {
    pub(crate) fn new(url: &str) -> Self {
        Self {
            url: url.to_owned(),
            is_broken: Arc::default(),
            panics: Arc::default(),
            panics_at_open: Arc::default(),
            opened: Mutex::default(),
        }
    }
}

pub(crate) fn start(url: &str, change: impl FnOnce(&mut ServeOptions)) -> Served {
    start_on(TestAccess::new(url), change)
}

pub(crate) fn start_on(access: TestAccess, change: impl FnOnce(&mut ServeOptions)) -> Served {
    let mut options = options();
    change(&mut options);
    let (is_broken, panics) = (Arc::clone(&access.is_broken), Arc::clone(&access.panics));
    let server = Server::start(Arc::new(access), options).unwrap();
    Served { server, is_broken, panics }
}

/// A directory with a store; removed on drop.
pub(crate) struct Directory(PathBuf);

impl Directory {
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("gossip-serve-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub(crate) fn url(&self) -> String {
        format!("sqlite:{}", self.0.join("store.db").display())
    }

    /// Works on integers; those in `failing` fail for good.
    pub(crate) fn work(&self, source: &str, failing: &[u64]) {
        let failing: BTreeSet<String> = failing.iter().map(u64::to_string).collect();
        let scan = Scan::of(source).store(self.url());
        let worked = scan.each(|item| match failing.contains(&item.text()?) {
            true => Err(ItemError::permanent("it is a bad one")),
            false => Ok(()),
        });
        let outcome = worked.unwrap();
        assert_eq!(outcome.is_complete(), failing.is_empty());
    }

    pub(crate) fn serve(&self) -> Served {
        start(&self.url(), |_| {})
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.0));
    }
}

/// An answer.
#[derive(Debug)]
pub(crate) struct Reply {
    pub status: u16,
    pub head: String,
    pub body: String,
}

impl Reply {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| {
            let (known, value) = line.split_once(':')?;
            known.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    }

    pub(crate) fn code(&self) -> String {
        let json: serde_json::Value = serde_json::from_str(&self.body).unwrap_or_default();
        json["code"].as_str().unwrap_or_default().to_owned()
    }

    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.body).unwrap()
    }
}

impl Served {
    pub(crate) fn address(&self) -> SocketAddr {
        self.server.address()
    }

    pub(crate) fn host(&self) -> String {
        format!("127.0.0.1:{}", self.address().port())
    }

    /// Sends these bytes and returns what comes back until the connection is closed.
    pub(crate) fn raw(&self, request: &[u8]) -> Reply {
        let mut stream = self.connect();
        stream.write_all(request).unwrap();
        read(&mut stream)
    }

    pub(crate) fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address()).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(40))).unwrap();
        stream
    }

    /// Sends a request with these headers and this body.
    pub(crate) fn send(&self, line: &str, headers: &[(&str, &str)], body: &str) -> Reply {
        let mut text = format!("{line} HTTP/1.1\r\nConnection: close\r\n");
        if !headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("host")) {
            text += &format!("Host: {}\r\n", self.host());
        }
        for (name, value) in headers {
            text += &format!("{name}: {value}\r\n");
        }
        text += &format!("Content-Length: {}\r\n\r\n{body}", body.len());
        self.raw(text.as_bytes())
    }

    /// Reads a path as the operator.
    pub(crate) fn get(&self, path: &str) -> Reply {
        let token = format!("Bearer {OPERATOR}");
        self.send(&format!("GET {path}"), &[("Authorization", &token)], "")
    }

    /// Sends a change as the operator.
    pub(crate) fn post(&self, path: &str, more: &[(&str, &str)], body: &str) -> Reply {
        let token = format!("Bearer {OPERATOR}");
        let mut headers =
            vec![("Authorization", token.as_str()), ("Content-Type", "application/json")];
        headers.extend(more);
        self.send(&format!("POST {path}"), &headers, body)
    }

    /// Reads a path until `wanted` holds.
    pub(crate) fn until(&self, path: &str, wanted: impl Fn(&Reply) -> bool) -> Reply {
        let started = Instant::now();
        loop {
            let reply = self.get(path);
            if wanted(&reply) {
                return reply;
            }
            assert!(started.elapsed() < Duration::from_secs(30), "{path}: {reply:?}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

pub(crate) fn read(stream: &mut TcpStream) -> Reply {
    let mut bytes = Vec::new();
    let mut chunk = [0_u8; 4_096];
    loop {
        match stream.read(&mut chunk) {
            Ok(0) => break,
            Ok(len) => bytes.extend_from_slice(&chunk[..len]),
            // A refused request may be reset while its body is on its way.
            Err(_) if !bytes.is_empty() => break,
            Err(error) => panic!("{error}"),
        }
    }
    parse(&String::from_utf8_lossy(&bytes))
}

pub(crate) fn parse(text: &str) -> Reply {
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or((text, ""));
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
    Reply { status, head: head.to_owned(), body: body.to_owned() }
}
