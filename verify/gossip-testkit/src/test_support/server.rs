//! One etcd server: started, watched, signalled, restarted with its data.

use std::fs::{self, File};
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::test_support::TestDirectory;

/// How long a server may take to become healthy. It takes half a second on an idle machine; this
/// is for one that compiles and tests on every core.
const START_TIMEOUT: Duration = Duration::from_secs(60);

/// How often a starting server is asked.
const START_POLL: Duration = Duration::from_millis(50);

/// How long the threads of a process may take to stop. A thread that waits for a disk stops after
/// that.
const STOP_TIMEOUT: Duration = Duration::from_secs(20);

/// How often the threads of a stopping process are looked at.
const STOP_POLL: Duration = Duration::from_millis(2);

/// How often other ports are tried when ours are taken between finding and using them.
const MAX_STARTS: usize = 5;

/// How much of a server's log is shown when a test fails.
const SHOWN_LOG_LINES: usize = 40;

/// How a server is started.
#[derive(Clone, Debug, Default)]
pub struct ServerOptions {
    /// Further flags, as `--max-txn-ops=16`.
    pub flags: Vec<String>,
    /// Serves clients over TLS.
    pub tls: Option<ServerTls>,
}

impl ServerOptions {
    /// The server's defaults and these flags.
    pub fn with_flags(flags: &[&str]) -> Self {
        Self { flags: flags.iter().map(|it| (*it).to_owned()).collect(), tls: None }
    }
}

/// The certificates of a server, in PEM.
#[derive(Clone, Debug)]
pub struct ServerTls {
    /// The server's certificate.
    pub cert_pem: String,
    /// Its private key.
    pub key_pem: String,
    /// Clients must show a certificate of this authority, if there is one.
    pub client_ca_pem: Option<String>,
}

/// A server that runs until its value is dropped.
#[derive(Debug)]
pub struct EtcdServer {
    plan: Plan,
    process: Option<Process>,
    directory: TestDirectory,
}

impl EtcdServer {
    /// A healthy server alone in its cluster.
    pub fn single() -> Self {
        Self::with_options(&ServerOptions::default())
    }

    /// As [`single`](Self::single), with options.
    pub fn with_options(options: &ServerOptions) -> Self {
        for _ in 0..MAX_STARTS {
            let plan = Plan::new("single", free_ports::<3>(), options);
            let members = plan.member();
            let mut server = Self::start(plan, &members);
            if server.wait_until_healthy().is_ok() {
                return server;
            }
        }
        panic!("etcd did not start on any of {MAX_STARTS} sets of free ports");
    }

    /// Starts a member without waiting for it.
    pub(super) fn start(plan: Plan, members: &str) -> Self {
        let directory = TestDirectory::new(&format!("etcd-{}", plan.name));
        let mut plan = plan;
        plan.prepare(&directory, members);
        let process = Some(plan.spawn(&directory));
        Self { plan, process, directory }
    }

    /// Its address for clients.
    pub fn endpoint(&self) -> String {
        let scheme = if self.plan.options.tls.is_some() { "https" } else { "http" };
        format!("{scheme}://{}:{}", self.plan.host, self.plan.client_port)
    }

    /// The port for clients.
    pub fn client_port(&self) -> u16 {
        self.plan.client_port
    }

    /// The port where it speaks plain HTTP about its health.
    pub fn metrics_port(&self) -> u16 {
        self.plan.metrics_port
    }

    /// Its process id, while it runs.
    pub fn pid(&self) -> Option<u32> {
        self.process.as_ref().map(|it| it.server.id())
    }

    /// Ends it as a power cut would (`SIGKILL`). Its data stays.
    pub fn kill(&mut self) {
        self.process = None;
    }

    /// Stops its process without ending it (`SIGSTOP`), and returns when all its threads have
    /// stopped: on a busy machine one of them may answer a request after the signal was sent.
    pub fn pause(&self) {
        self.signal("STOP");
        let pid = self.pid().expect("the signal was sent to a process");
        let deadline = Instant::now() + STOP_TIMEOUT;
        while !has_stopped(pid) {
            assert!(Instant::now() < deadline, "a thread of etcd does not stop");
            thread::sleep(STOP_POLL);
        }
    }

    /// Resumes a stopped process (`SIGCONT`).
    pub fn resume(&self) {
        self.signal("CONT");
    }

    /// Starts it again with its data and waits until it is healthy.
    pub fn restart(&mut self) {
        self.restart_without_waiting();
        self.wait_until_healthy().expect("the ports were ours a moment ago");
    }

    /// Starts it again with its data. Alone of three it never becomes healthy.
    pub fn restart_without_waiting(&mut self) {
        self.process = None;
        self.process = Some(self.plan.spawn(&self.directory));
    }

    /// Replaces its certificate, which it reads for every new connection.
    pub fn replace_tls(&mut self, tls: ServerTls) {
        self.plan.options.tls = Some(tls);
        self.plan.tls_flags(&self.directory);
    }

    /// Its name, and the address that its peers know.
    pub fn member(&self) -> String {
        self.plan.member()
    }

    /// Starts it on another data directory, which a restore has made, without waiting for it.
    pub fn restart_on(&mut self, data: &Path) {
        self.process = None;
        let is_data = |argument: &&mut String| argument.starts_with(DATA_DIR);
        let argument = self.plan.arguments.iter_mut().find(is_data);
        *argument.expect("a server has a data directory") = format!("{DATA_DIR}{}", data.display());
        self.process = Some(self.plan.spawn(&self.directory));
    }

    /// Returns its id and the id of the leader that it knows; `None` if it does not answer.
    ///
    /// Uses etcd's JSON gateway, so that this crate needs no gRPC client. Servers with TLS have
    /// none that speaks plain HTTP.
    pub(super) fn id_and_leader(&self) -> Option<(String, String)> {
        let address = SocketAddr::from((self.plan.host, self.plan.client_port));
        let request = "POST /v3/maintenance/status HTTP/1.0\r\nContent-Length: 2\r\n\r\n{}";
        let text = http(address, request)?;
        // Both are decimal numbers in quotes.
        let field = |name: &str| {
            let (_, rest) = text.split_once(&format!("\"{name}\":\""))?;
            Some(rest.split_once('"')?.0.to_owned())
        };
        Some((field("member_id")?, field("leader")?))
    }

    /// Polls until the server has a leader and answers. An error means that it ended because
    /// another process uses its ports.
    pub(super) fn wait_until_healthy(&mut self) -> Result<(), PortsTaken> {
        let deadline = Instant::now() + START_TIMEOUT;
        while !is_healthy(SocketAddr::from((self.plan.host, self.plan.metrics_port))) {
            let process = self.process.as_mut().expect("it was started before it is waited for");
            if process.has_ended() {
                let log = self.log();
                assert!(log.contains("address already in use"), "etcd ended:\n{log}");
                return Err(PortsTaken);
            }
            assert!(Instant::now() < deadline, "etcd is not healthy:\n{}", self.log());
            thread::sleep(START_POLL);
        }
        Ok(())
    }

    /// The last lines of its log.
    pub fn log(&self) -> String {
        let text = fs::read(self.directory.path().join(LOG)).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(SHOWN_LOG_LINES)..].join("\n")
    }

    fn signal(&self, name: &str) {
        let pid = self.pid().expect("a server that is signalled runs");
        send_signal(name, pid);
    }
}

impl Drop for EtcdServer {
    #[expect(clippy::print_stderr, reason = "a failed test shows what its server said")]
    fn drop(&mut self) {
        if thread::panicking() {
            eprintln!("etcd {} said at the end:\n{}", self.plan.name, self.log());
        }
    }
}

/// The ports were taken between finding and using them.
#[derive(Debug)]
pub(super) struct PortsTaken;

/// The addresses and flags of a server.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) name: String,
    host: Ipv4Addr,
    /// What starts it, if it does not run on this machine's network.
    launcher: Vec<String>,
    client_port: u16,
    peer_port: u16,
    metrics_port: u16,
    /// The port advertised to its peers: that of the proxy if there is one in front of it.
    advertised_peer_port: u16,
    options: ServerOptions,
    /// Everything on its command line.
    arguments: Vec<String>,
}

impl Plan {
    /// A server on the ports for clients, peers and health.
    pub(super) fn new(name: &str, ports: [u16; 3], options: &ServerOptions) -> Self {
        let [client_port, peer_port, metrics_port] = ports;
        Self {
            name: name.to_owned(),
            host: Ipv4Addr::LOCALHOST,
            launcher: Vec::new(),
            client_port,
            peer_port,
            metrics_port,
            advertised_peer_port: peer_port,
            options: options.clone(),
            arguments: Vec::new(),
        }
    }

    /// Where it really listens for its peers.
    pub(super) fn peer_address(&self) -> SocketAddr {
        SocketAddr::from((self.host, self.peer_port))
    }

    /// Runs it somewhere else.
    pub(super) fn on(mut self, host: Ipv4Addr, launcher: Vec<String>) -> Self {
        (self.host, self.launcher) = (host, launcher);
        self
    }

    /// Advertises a proxy's port to its peers.
    pub(super) fn behind(mut self, proxy_port: u16) -> Self {
        self.advertised_peer_port = proxy_port;
        self
    }

    /// Its entry in the list of members.
    pub(super) fn member(&self) -> String {
        format!("{}=http://{}:{}", self.name, self.host, self.advertised_peer_port)
    }

    fn prepare(&mut self, directory: &TestDirectory, members: &str) {
        let scheme = if self.options.tls.is_some() { "https" } else { "http" };
        let host = self.host;
        let client = format!("{scheme}://{host}:{}", self.client_port);
        let advertised = format!("http://{host}:{}", self.advertised_peer_port);
        let data = directory.path().join("data");
        self.arguments = vec![
            format!("--name={}", self.name),
            format!("{DATA_DIR}{}", data.display()),
            format!("--listen-client-urls={client}"),
            format!("--advertise-client-urls={client}"),
            format!("--listen-peer-urls=http://{host}:{}", self.peer_port),
            format!("--initial-advertise-peer-urls={advertised}"),
            format!("--initial-cluster={members}"),
            format!("--listen-metrics-urls=http://{host}:{}", self.metrics_port),
            "--logger=zap".to_owned(),
            "--log-level=warn".to_owned(),
        ];
        self.arguments.extend(self.tls_flags(directory));
        self.arguments.extend(self.options.flags.iter().cloned());
    }

    /// Writes the certificates and names them.
    fn tls_flags(&self, directory: &TestDirectory) -> Vec<String> {
        let Some(tls) = &self.options.tls else { return Vec::new() };
        let write = |name: &str, pem: &str| -> PathBuf {
            let path = directory.path().join(name);
            fs::write(&path, pem).expect("our own directory is writable");
            path
        };
        let mut flags = vec![
            format!("--cert-file={}", write("server.pem", &tls.cert_pem).display()),
            format!("--key-file={}", write("server.key", &tls.key_pem).display()),
        ];
        if let Some(ca) = &tls.client_ca_pem {
            flags.push(format!("--trusted-ca-file={}", write("client-ca.pem", ca).display()));
            flags.push("--client-cert-auth".to_owned());
        }
        flags
    }

    fn spawn(&self, directory: &TestDirectory) -> Process {
        let log = directory.path().join(LOG);
        let log = File::options().create(true).append(true).open(log);
        let log = log.expect("our own directory is writable");
        let mut words = self.launcher.iter().map(String::as_str).chain(["etcd"]);
        let mut command = Command::new(words.next().unwrap_or("etcd"));
        command.args(words);
        // Settings of another server in the environment must not apply here.
        command.env_clear().envs(std::env::var_os("PATH").map(|path| ("PATH", path)));
        if cfg!(target_arch = "aarch64") {
            command.env("ETCD_UNSUPPORTED_ARCH", "arm64");
        }
        let copy = log.try_clone().expect("a file that was just opened can be shared");
        command.args(&self.arguments).stdin(Stdio::null()).stdout(copy).stderr(log);
        match command.spawn() {
            Ok(server) => Process::watched(server, |pid| format!("kill -KILL {pid}")),
            Err(error) if error.kind() == ErrorKind::NotFound => {
                panic!("there is no `etcd` on the search path: run `cargo xtask setup`");
            }
            Err(error) => panic!("etcd was not started: {error}"),
        }
    }
}

/// The flag of the data directory.
const DATA_DIR: &str = "--data-dir=";

/// The name of the log in the server's directory.
const LOG: &str = "etcd.log";

/// A running server and the shell that ends it if this process ends first.
#[derive(Debug)]
pub(super) struct Process {
    pub(super) server: Child,
    watchdog: Child,
}

impl Process {
    /// Watches a server, which the shell ends by the commands that `end` returns for its id.
    pub(super) fn watched(server: Child, end: impl FnOnce(u32) -> String) -> Self {
        // The shell's input closes when this process ends, however it ends.
        let script = format!("read _; {}", end(server.id()));
        let mut watchdog = Command::new("sh");
        watchdog.args(["-c", &script]).stdin(Stdio::piped()).stderr(Stdio::null());
        let watchdog = watchdog.spawn().expect("there is a shell");
        Self { server, watchdog }
    }

    pub(super) fn has_ended(&mut self) -> bool {
        self.server.try_wait().is_ok_and(|status| status.is_some())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // The watchdog ends first: once the server is reaped, its id may be reused. Both are our
        // own children, so they exist until we wait for them.
        for child in [&mut self.watchdog, &mut self.server] {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Ports that are free now.
pub(super) fn free_ports<const N: usize>() -> [u16; N] {
    // All are held before the first is let go, so that they differ.
    let listeners: [TcpListener; N] = std::array::from_fn(|_| {
        TcpListener::bind(("127.0.0.1", 0)).expect("loopback has free ports")
    });
    listeners.map(|it| it.local_addr().expect("a bound socket has an address").port())
}

/// Signals a process by its id. The standard library can only kill.
pub fn send_signal(name: &str, pid: u32) {
    let status = Command::new("sh").args(["-c", &format!("kill -{name} {pid}")]).status();
    assert!(status.is_ok_and(|it| it.success()), "process {pid} did not take {name}");
}

/// Whether a server says of itself that it is healthy.
/// Returns whether every thread of a process has stopped.
fn has_stopped(pid: u32) -> bool {
    let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else {
        return false;
    };
    threads.flatten().all(|thread| {
        let Ok(line) = fs::read_to_string(thread.path().join("stat")) else {
            // A thread that ends between the two reads answers nothing any more.
            return true;
        };
        // The name of the thread may contain anything; the state follows its last parenthesis.
        line.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('T'))
    })
}

fn is_healthy(address: SocketAddr) -> bool {
    let answer = http(address, "GET /health HTTP/1.0\r\n\r\n");
    answer.is_some_and(|text| text.contains("\"health\":\"true\""))
}

/// Sends one request of HTTP/1.0, whose connection ends with the answer, and returns that.
fn http(address: SocketAddr, request: &str) -> Option<String> {
    let mut stream = TcpStream::connect_timeout(&address, Duration::from_secs(1)).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(5))).ok()?;
    stream.write_all(request.as_bytes()).ok()?;
    let mut text = String::new();
    stream.read_to_string(&mut text).ok()?;
    Some(text)
}
