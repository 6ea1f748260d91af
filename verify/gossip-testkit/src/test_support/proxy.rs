//! A network that can be broken: a proxy for TCP that cuts, holds back and delays.
//!
//! It needs no privileges. Held bytes are delivered later, as by a network that loses packets for a
//! while; bytes on a cut connection are lost. A cut can be limited to one process by its id, which
//! distinguishes one of several servers on loopback from the others (Linux only).

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use std::{fs, thread};

/// How long a connection to the target may take before the one that asked for it is closed.
const TARGET_TIMEOUT: Duration = Duration::from_secs(2);

/// How much is forwarded at a time.
const BUFFER_BYTES: usize = 64 << 10;

/// Which way bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "there are two ways")]
pub enum Direction {
    /// From the one that connected: requests.
    ToTarget,
    /// Back to it: answers.
    FromTarget,
}

/// A proxy before one address. It ends with its value.
#[derive(Debug)]
pub struct Proxy {
    port: u16,
    shared: Arc<Shared>,
}

impl Proxy {
    /// A proxy on a free loopback port that lets everything through.
    pub fn new(target: SocketAddr) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("loopback has free ports");
        let port = listener.local_addr().expect("a bound socket has an address").port();
        let shared = Arc::new(Shared::new(target, port));
        let state = Arc::clone(&shared);
        thread::spawn(move || accept(&listener, &state));
        Self { port, shared }
    }

    /// A proxy before a port on loopback.
    pub fn before(port: u16) -> Self {
        Self::new(SocketAddr::from((Ipv4Addr::LOCALHOST, port)))
    }

    /// Where it listens, on loopback.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Its address for a client without TLS.
    pub fn endpoint(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// Closes every connection and lets no new one through.
    pub fn cut(&self) {
        self.shared.rules().is_cut = true;
        self.shared.close_connections(|_| true);
    }

    /// As [`cut`](Self::cut), for the connections that one process makes.
    pub fn cut_from(&self, pid: u32) {
        self.shared.rules().cut_pids.push(pid);
        // The kernel is asked once and not for each connection: meanwhile the cut is not complete.
        let ports = ports_of(pid, self.port);
        self.shared.close_connections(|it| ports.contains(&it.peer_port));
    }

    /// Closes every connection; new ones are let through.
    pub fn reset(&self) {
        self.shared.close_connections(|_| true);
    }

    /// Holds back what goes one way until [`open`](Self::open).
    pub fn hold(&self, direction: Direction) {
        match direction {
            Direction::ToTarget => self.shared.rules().holds_to_target = true,
            Direction::FromTarget => self.shared.rules().holds_from_target = true,
        }
    }

    /// Delays everything that goes either way from now on.
    pub fn delay(&self, delay: Duration) {
        self.shared.rules().delay = delay;
    }

    /// Leads new connections to another port on loopback, as a server that was replaced.
    pub fn redirect(&self, port: u16) {
        *self.shared.target() = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    }

    /// Removes every rule and delivers the held packets.
    pub fn open(&self) {
        *self.shared.rules() = Rules::default();
        self.shared.changed.notify_all();
    }

    /// How many bytes have come to the proxy for its target, held ones included.
    pub fn bytes_to_target(&self) -> u64 {
        self.shared.rules().bytes_to_target
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.shared.rules().is_ended = true;
        self.shared.changed.notify_all();
        self.shared.close_connections(|_| true);
        // Wakes the thread that waits for connections, so that it sees the end.
        let _ = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port));
    }
}

/// What the threads of a proxy share.
#[derive(Debug)]
struct Shared {
    target: Mutex<SocketAddr>,
    port: u16,
    rules: Mutex<Rules>,
    changed: Condvar,
    /// Those that have not ended, each under a number that is never used again.
    connections: Mutex<BTreeMap<u64, Connection>>,
    next: AtomicU64,
}

/// The permitted traffic.
#[derive(Debug, Default)]
struct Rules {
    is_cut: bool,
    cut_pids: Vec<u32>,
    holds_to_target: bool,
    holds_from_target: bool,
    delay: Duration,
    bytes_to_target: u64,
    is_ended: bool,
}

impl Rules {
    fn holds(&self, direction: Direction) -> bool {
        !self.is_ended
            && match direction {
                Direction::ToTarget => self.holds_to_target,
                Direction::FromTarget => self.holds_from_target,
            }
    }
}

/// Both ends of what passes through, to close them.
#[derive(Debug)]
struct Connection {
    /// The port of the one that connected.
    peer_port: u16,
    ends: [TcpStream; 2],
}

impl Shared {
    fn new(target: SocketAddr, port: u16) -> Self {
        Self {
            target: Mutex::new(target),
            port,
            rules: Mutex::default(),
            changed: Condvar::new(),
            connections: Mutex::default(),
            next: AtomicU64::new(0),
        }
    }

    fn rules(&self) -> MutexGuard<'_, Rules> {
        self.rules.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn target(&self) -> MutexGuard<'_, SocketAddr> {
        self.target.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn connections(&self) -> MutexGuard<'_, BTreeMap<u64, Connection>> {
        self.connections.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn close_connections(&self, which: impl Fn(&Connection) -> bool) {
        self.connections().retain(|_, connection| {
            let closes = which(connection);
            if closes {
                for end in &connection.ends {
                    // It may be closed already.
                    let _ = end.shutdown(Shutdown::Both);
                }
            }
            !closes
        });
    }

    fn admits(&self, peer_port: u16) -> bool {
        let (is_cut, cut_pids) = {
            let rules = self.rules();
            (rules.is_cut, rules.cut_pids.clone())
        };
        // To ask the kernel takes milliseconds. Connections that are not cut off must not wait
        // meanwhile.
        !is_cut && !cut_pids.iter().any(|pid| is_of(*pid, peer_port, self.port))
    }

    /// Waits until something may pass. `false` at the end of the proxy.
    fn wait_to_pass(&self, direction: Direction) -> bool {
        let rules = self.rules();
        let rules = self.changed.wait_while(rules, |it| it.holds(direction));
        let rules = rules.unwrap_or_else(PoisonError::into_inner);
        let (delay, is_ended) = (rules.delay, rules.is_ended);
        drop(rules);
        thread::sleep(delay);
        !is_ended
    }
}

/// Takes connections until the proxy ends.
fn accept(listener: &TcpListener, shared: &Arc<Shared>) {
    for stream in listener.incoming().flatten() {
        if shared.rules().is_ended {
            return;
        }
        let peer_port = stream.peer_addr().map_or(0, |it| it.port());
        if shared.admits(peer_port) {
            // A target that does not answer is as good as a closed connection.
            let _ = connect(shared, stream, peer_port);
        }
    }
}

fn connect(shared: &Arc<Shared>, near: TcpStream, peer_port: u16) -> std::io::Result<()> {
    let target = *shared.target();
    let far = TcpStream::connect_timeout(&target, TARGET_TIMEOUT)?;
    near.set_nodelay(true)?;
    far.set_nodelay(true)?;
    let ends = [near.try_clone()?, far.try_clone()?];
    let number = shared.next.fetch_add(1, Ordering::Relaxed);
    shared.connections().insert(number, Connection { peer_port, ends });
    let ways = [
        (near.try_clone()?, far.try_clone()?, Direction::ToTarget),
        (far, near, Direction::FromTarget),
    ];
    for (from, to, direction) in ways {
        let shared = Arc::clone(shared);
        thread::spawn(move || {
            forward(&shared, from, to, direction);
            shared.connections().remove(&number);
        });
    }
    Ok(())
}

/// Forwards one way until an end closes.
fn forward(shared: &Shared, mut from: TcpStream, mut to: TcpStream, direction: Direction) {
    let mut buffer = vec![0; BUFFER_BYTES];
    while let Ok(length @ 1..) = from.read(&mut buffer) {
        if direction == Direction::ToTarget {
            shared.rules().bytes_to_target += length as u64;
        }
        if !shared.wait_to_pass(direction) || to.write_all(&buffer[..length]).is_err() {
            break;
        }
    }
    for end in [from, to] {
        // The other direction may have closed it already.
        let _ = end.shutdown(Shutdown::Both);
    }
}

/// Whether a process holds the socket that connects `port` with `proxy_port` on loopback.
fn is_of(pid: u32, port: u16, proxy_port: u16) -> bool {
    ports_of(pid, proxy_port).contains(&port)
}

/// The ports from which a process is connected with `proxy_port` on loopback.
fn ports_of(pid: u32, proxy_port: u16) -> BTreeSet<u16> {
    let sockets = sockets_to(proxy_port);
    // A process that has ended holds none.
    let Ok(entries) = fs::read_dir(format!("/proc/{pid}/fd")) else { return BTreeSet::new() };
    let links = entries.flatten().filter_map(|entry| fs::read_link(entry.path()).ok());
    links.filter_map(|link| sockets.get(link.to_str()?).copied()).collect()
}

/// The kernel's names of the sockets that are connected with a port, and their own ports.
fn sockets_to(remote: u16) -> BTreeMap<String, u16> {
    let table = fs::read_to_string("/proc/net/tcp").expect("cuts by process need Linux");
    let remote = format!(":{remote:04X}");
    let socket = |line: &str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let (_, local) = fields.get(1)?.split_once(':')?;
        let is_it = fields.get(2)?.ends_with(&remote);
        let port = u16::from_str_radix(local, 16).ok()?;
        is_it.then_some((format!("socket:[{}]", fields.get(9)?), port))
    };
    table.lines().filter_map(socket).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn echo_server() -> u16 {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                thread::spawn(move || {
                    let mut copy = stream.try_clone().unwrap();
                    let _ = std::io::copy(&mut copy, &mut &stream);
                });
            }
        });
        port
    }

    fn connected(proxy: &Proxy) -> TcpStream {
        let stream = TcpStream::connect(("127.0.0.1", proxy.port())).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        stream
    }

    fn echo(stream: &mut TcpStream, byte: u8) -> std::io::Result<u8> {
        stream.write_all(&[byte])?;
        let mut answer = [0];
        stream.read_exact(&mut answer)?;
        Ok(answer[0])
    }

    #[test]
    fn a_cut_closes_connections_and_new_ones_too() {
        let proxy = Proxy::before(echo_server());
        let mut stream = connected(&proxy);
        assert_eq!(echo(&mut stream, 1).unwrap(), 1);
        proxy.cut();
        assert!(echo(&mut stream, 2).is_err());
        assert!(echo(&mut connected(&proxy), 3).is_err());
        proxy.open();
        assert_eq!(echo(&mut connected(&proxy), 4).unwrap(), 4);
    }

    #[test]
    fn a_connection_that_has_ended_is_forgotten() {
        let proxy = Proxy::before(echo_server());
        let mut stream = connected(&proxy);
        assert_eq!(echo(&mut stream, 1).unwrap(), 1);
        assert_eq!(proxy.shared.connections().len(), 1);
        drop(stream);
        let ended = std::time::Instant::now();
        while !proxy.shared.connections().is_empty() {
            assert!(ended.elapsed() < Duration::from_secs(10), "it is kept");
            thread::sleep(Duration::from_millis(10));
        }
    }

    #[test]
    fn held_bytes_arrive_later() {
        let proxy = Proxy::before(echo_server());
        let mut stream = connected(&proxy);
        proxy.hold(Direction::FromTarget);
        stream.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
        assert!(echo(&mut stream, 5).is_err());
        proxy.open();
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let mut answer = [0];
        stream.read_exact(&mut answer).unwrap();
        assert_eq!(answer, [5]);
    }

    #[test]
    fn a_cut_can_be_limited_to_a_process() {
        let proxy = Proxy::before(echo_server());
        let mut stream = connected(&proxy);
        // The first process of the system is not this one.
        proxy.cut_from(1);
        assert_eq!(echo(&mut stream, 6).unwrap(), 6);
        proxy.cut_from(std::process::id());
        assert!(echo(&mut stream, 7).is_err());
    }
}
