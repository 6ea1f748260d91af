//! A network of namespaces: each member has a machine of its own, as far as the network goes.
//!
//! Needs Linux, root and the program `ip`; `iptables` for links that are cut one way. Packets are
//! dropped where a cable would be cut, so connections hang as they do in real life, where the proxy
//! closes them. Whether a machine lets us
//! is found out by trying ([`Network::is_possible`]), never guessed.

use std::net::Ipv4Addr;
use std::process::{self, Child, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, Ordering};

/// Networks that a process can have in its life: each takes sixteen addresses of the last byte.
const MAX_NETWORKS: u8 = 16;

/// Addresses of one network.
const ADDRESSES: u8 = 16;

/// Namespaces on one bridge. They go away with this value, or with this process.
#[derive(Debug)]
pub(super) struct Network {
    /// The beginning of every name; short, since names of devices are.
    name: String,
    /// The address of the bridge, from which clients speak.
    base: Ipv4Addr,
    members: usize,
    /// Cleans up if this process cannot.
    watchdog: Child,
}

impl Network {
    /// Whether this machine lets us: makes a namespace, a bridge and a cable once, and takes them
    /// away again. Root alone is not enough in many containers.
    pub(super) fn is_possible() -> bool {
        static TRIED: OnceLock<bool> = OnceLock::new();
        *TRIED.get_or_init(|| {
            let name = format!("gsp{}t", process::id());
            let is_made = [
                format!("netns add {name}n0"),
                format!("link add {name} type bridge"),
                format!("link add {name}v0 type veth peer name eth0 netns {name}n0"),
            ]
            .iter()
            .all(|words| tell_ip(words).is_ok());
            sweep(&name, 1);
            is_made
        })
    }

    /// Whether this machine lets us drop packets one way: adds a rule in a namespace once.
    pub(super) fn can_filter() -> bool {
        static TRIED: OnceLock<bool> = OnceLock::new();
        *TRIED.get_or_init(|| {
            let name = format!("gsp{}f", process::id());
            let rule = format!("netns exec {name}n0 iptables -w -A INPUT -s 10.128.0.1 -j DROP");
            let is_made = Self::is_possible()
                && tell_ip(&format!("netns add {name}n0")).is_ok()
                && tell_ip(&rule).is_ok();
            sweep(&name, 1);
            is_made
        })
    }

    /// A network with so many members, all connected.
    pub(super) fn new(members: usize) -> Self {
        static COUNTER: AtomicU8 = AtomicU8::new(0);
        let number = COUNTER.fetch_add(1, Ordering::Relaxed);
        assert!(number < MAX_NETWORKS, "a process has at most {MAX_NETWORKS} networks");
        let [_, _, high, low] = process::id().to_be_bytes();
        // Two processes at a time differ in their ids, and so in their addresses.
        let base = Ipv4Addr::new(10, 128 + high % 64, low, number * ADDRESSES + 1);
        let name = format!("gsp{}x{number}", process::id());
        let script = format!("read _; {}", clean_up(&name, members));
        let mut watchdog = Command::new("sh");
        watchdog.args(["-c", &script]).stdin(Stdio::piped()).stderr(Stdio::null());
        let watchdog = watchdog.spawn().expect("there is a shell");
        let network = Self { name, base, members, watchdog };
        network.connect();
        network
    }

    fn connect(&self) {
        let bridge = &self.name;
        ip(&format!("link add {bridge} type bridge"));
        ip(&format!("addr add {}/28 dev {bridge}", self.base));
        ip(&format!("link set {bridge} up"));
        for index in 0..self.members {
            let (name, cable) = (self.namespace(index), self.cable(index));
            ip(&format!("netns add {name}"));
            ip(&format!("link add {cable} type veth peer name eth0 netns {name}"));
            ip(&format!("link set {cable} master {bridge} up"));
            ip(&format!("-n {name} addr add {}/28 dev eth0", self.address(index)));
            ip(&format!("-n {name} link set eth0 up"));
            ip(&format!("-n {name} link set lo up"));
        }
    }

    /// Where a member is.
    pub(super) fn address(&self, index: usize) -> Ipv4Addr {
        let offset = u32::try_from(index).expect("members are few") + 1;
        Ipv4Addr::from(u32::from(self.base) + offset)
    }

    /// What starts a program on the machine of a member.
    pub(super) fn launcher(&self, index: usize) -> Vec<String> {
        ["ip", "netns", "exec", &self.namespace(index)].map(str::to_owned).to_vec()
    }

    /// Drops the packets that arrive at a machine from another, until [`pass`](Self::pass). The
    /// other way is not affected.
    pub(super) fn drop(&self, from: usize, to: usize) {
        self.filter("-A", from, to);
    }

    /// Takes back one [`drop`](Self::drop).
    pub(super) fn pass(&self, from: usize, to: usize) {
        self.filter("-D", from, to);
    }

    fn filter(&self, change: &str, from: usize, to: usize) {
        let (name, source) = (self.namespace(to), self.address(from));
        ip(&format!("netns exec {name} iptables -w {change} INPUT -s {source} -j DROP"));
    }

    /// Drops what one of the first `peers` machines sends to the others of them and they to it;
    /// clients still reach it.
    pub(super) fn cut_off(&self, index: usize, peers: usize) {
        for other in (0..peers).filter(|it| *it != index) {
            for (from, to) in [(index, other), (other, index)] {
                let (from, to) = (self.namespace(from), self.address(to));
                ip(&format!("-n {from} route add blackhole {to}/32"));
            }
        }
    }

    /// Removes the link of a member from the bridge: no packet reaches or leaves it, client traffic
    /// included. Its own end stays up, so neither side sees a link failure.
    pub(super) fn unplug(&self, index: usize) {
        ip(&format!("link set {} nomaster", self.cable(index)));
    }

    /// Takes back every cut, and plugs every cable in.
    pub(super) fn heal(&self) {
        for index in 0..self.members {
            ip(&format!("-n {} route flush type blackhole", self.namespace(index)));
            ip(&format!("link set {} master {}", self.cable(index), self.name));
        }
    }

    fn namespace(&self, index: usize) -> String {
        format!("{}n{index}", self.name)
    }

    fn cable(&self, index: usize) -> String {
        format!("{}v{index}", self.name)
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        // It is our own child.
        let _ = self.watchdog.kill();
        let _ = self.watchdog.wait();
        sweep(&self.name, self.members);
    }
}

/// Removes the remains of a network. Ignores parts that do not exist.
fn sweep(name: &str, members: usize) {
    let script = clean_up(name, members);
    let _ = Command::new("sh").args(["-c", &script]).stderr(Stdio::null()).status();
}

/// Cables go first: a namespace lives on for minutes while connections in it wait for answers.
fn clean_up(name: &str, members: usize) -> String {
    let member = |index| format!("ip link del {name}v{index}; ip netns del {name}n{index}");
    let mut commands: Vec<String> = (0..members).map(member).collect();
    commands.push(format!("ip link del {name}"));
    commands.join("; ")
}

/// Runs `ip` with words that hold no spaces, on a machine that lets us.
fn ip(words: &str) {
    if let Err(said) = tell_ip(words) {
        panic!("ip {words}: {said}");
    }
}

/// Runs `ip` on any machine. An error holds its standard error output.
fn tell_ip(words: &str) -> Result<(), String> {
    let output = Command::new("ip").args(words.split(' ')).output();
    let output = output.map_err(|error| error.to_string())?;
    if output.status.success() {
        return Ok(());
    }
    Err(String::from_utf8_lossy(&output.stderr).into_owned())
}
