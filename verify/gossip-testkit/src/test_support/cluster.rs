//! Three servers that form a cluster, and ways to cut one of them off from the others.

use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use crate::test_support::network::Network;
use crate::test_support::server::{Plan, free_ports};
use crate::test_support::{EtcdServer, Proxy, ServerOptions};

/// How many members a cluster has: the least of which one may be lost.
const MEMBERS: usize = 3;

/// How often other ports are tried when ours are taken.
const MAX_STARTS: usize = 5;

/// How long an election may take on a machine that is busy with other tests.
const ELECTION_TIMEOUT: Duration = Duration::from_secs(60);

/// How often members are asked who leads.
const ELECTION_POLL: Duration = Duration::from_millis(50);

/// The ports of a member that has a network of its own: for clients, peers and health.
const OWN_PORTS: [u16; 3] = [2379, 2380, 2381];

/// Three members.
#[derive(Debug)]
pub struct EtcdCluster {
    members: Vec<EtcdServer>,
    between: Between,
}

/// The network between the members.
#[derive(Debug)]
enum Between {
    /// Each is behind a proxy through which its peers must pass.
    Gates(Vec<Proxy>),
    /// Each is on a network of its own.
    Cables(Network),
}

impl EtcdCluster {
    /// A healthy cluster.
    pub fn three() -> Self {
        Self::with_options(&ServerOptions::default())
    }

    /// As [`three`](Self::three), with options for every member.
    pub fn with_options(options: &ServerOptions) -> Self {
        (0..MAX_STARTS)
            .find_map(|_| Self::on_loopback(options))
            .expect("one of several sets of free ports stays free")
    }

    /// The message if [`can_have_machines`](Self::can_have_machines) is false.
    pub const NO_MACHINES: &str = "that needs network namespaces (Linux, root and the program \
        `ip`), which this machine did not let us have";

    /// Whether this machine lets us use [`three_machines`](Self::three_machines): it needs Linux,
    /// root, the program `ip` and leave to make network namespaces. Found out by trying.
    pub fn can_have_machines() -> bool {
        Network::is_possible()
    }

    /// The message if [`can_filter_packets`](Self::can_filter_packets) is false.
    pub const NO_FILTER: &str = "that needs network namespaces and packet filters (Linux, root and \
        the programs `ip` and `iptables`), which this machine did not let us have";

    /// Whether packets can be dropped one way ([`drop_packets`](Self::drop_packets)). Found out by
    /// trying.
    pub fn can_filter_packets() -> bool {
        Network::can_filter()
    }

    /// A healthy cluster whose members have network namespaces of their own, so that packets can be
    /// dropped between them.
    pub fn three_machines() -> Self {
        Self::three_machines_and(0)
    }

    /// As [`three_machines`](Self::three_machines), with more machines on the same network, for
    /// clients. Machines are numbered: the members first, then these.
    pub fn three_machines_and(others: usize) -> Self {
        let network = Network::new(MEMBERS + others);
        let plan = |index| {
            let plan = Plan::new(&member_name(index), OWN_PORTS, &ServerOptions::default());
            plan.on(network.address(index), network.launcher(index))
        };
        let plans = (0..MEMBERS).map(plan).collect();
        let started = Self::start(plans, Between::Cables(network));
        started.expect("no other program uses the ports of this network")
    }

    fn on_loopback(options: &ServerOptions) -> Option<Self> {
        let plan = |index| {
            let plan = Plan::new(&member_name(index), free_ports::<3>(), options);
            let gate = Proxy::new(plan.peer_address());
            (plan.behind(gate.port()), gate)
        };
        let (plans, gates) = (0..MEMBERS).map(plan).unzip();
        Self::start(plans, Between::Gates(gates))
    }

    /// `None` if a port is taken.
    fn start(plans: Vec<Plan>, between: Between) -> Option<Self> {
        let list = plans.iter().map(Plan::member).collect::<Vec<_>>().join(",");
        let members = plans.into_iter().map(|plan| EtcdServer::start(plan, &list)).collect();
        let mut cluster = Self { members, between };
        let healthy = cluster.members.iter_mut().all(|it| it.wait_until_healthy().is_ok());
        healthy.then_some(cluster)
    }

    /// Ends all members, starts each on the data directory that `restore` returns for it, and waits
    /// until they are healthy.
    pub fn restart_on(&mut self, mut restore: impl FnMut(&EtcdServer) -> PathBuf) {
        self.members.iter_mut().for_each(EtcdServer::kill);
        let restored: Vec<PathBuf> = self.members.iter().map(&mut restore).collect();
        for (member, data) in self.members.iter_mut().zip(&restored) {
            member.restart_on(data);
        }
        for member in &mut self.members {
            member.wait_until_healthy().expect("the ports were ours a moment ago");
        }
    }

    /// The names of all members, and the addresses that their peers know.
    pub fn member_list(&self) -> String {
        self.members.iter().map(EtcdServer::member).collect::<Vec<_>>().join(",")
    }

    /// The addresses of all members for clients.
    pub fn endpoints(&self) -> Vec<String> {
        self.members.iter().map(EtcdServer::endpoint).collect()
    }

    /// A member, by its place.
    pub fn member(&mut self, index: usize) -> &mut EtcdServer {
        &mut self.members[index]
    }

    /// How many members there are.
    pub fn len(&self) -> usize {
        self.members.len()
    }

    /// Never.
    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// Cuts the connections of a member to and from its peers; clients still reach it.
    pub fn cut_off(&self, index: usize) {
        match &self.between {
            Between::Cables(network) => network.cut_off(index, MEMBERS),
            Between::Gates(gates) => {
                let pid = self.members[index].pid().expect("a member that is cut off runs");
                for (other, gate) in gates.iter().enumerate() {
                    if other == index { gate.cut() } else { gate.cut_from(pid) }
                }
            }
        }
    }

    /// Drops every packet to and from a member, those of its clients as well.
    ///
    /// # Panics
    ///
    /// If the members have no machines of their own.
    pub fn unplug(&self, index: usize) {
        self.network().unplug(index);
    }

    /// Returns the words that start a program on a machine.
    ///
    /// # Panics
    ///
    /// As [`unplug`](Self::unplug).
    pub fn launcher(&self, machine: usize) -> Vec<String> {
        self.network().launcher(machine)
    }

    /// Drops the packets from one machine to another until [`pass_packets`](Self::pass_packets);
    /// the other way is not affected.
    ///
    /// # Panics
    ///
    /// As [`unplug`](Self::unplug).
    pub fn drop_packets(&self, from: usize, to: usize) {
        self.network().drop(from, to);
    }

    /// Takes back one [`drop_packets`](Self::drop_packets).
    ///
    /// # Panics
    ///
    /// As [`unplug`](Self::unplug).
    pub fn pass_packets(&self, from: usize, to: usize) {
        self.network().pass(from, to);
    }

    fn network(&self) -> &Network {
        match &self.between {
            Between::Cables(network) => network,
            Between::Gates(_) => panic!("only members with machines of their own have cables"),
        }
    }

    /// Takes back every cut.
    pub fn heal(&self) {
        match &self.between {
            Between::Cables(network) => network.heal(),
            Between::Gates(gates) => gates.iter().for_each(Proxy::open),
        }
    }

    /// Waits until the members other than `except` agree on a leader, and returns its place.
    ///
    /// Blocks the thread, as everything here does.
    pub fn leader(&self, except: Option<usize>) -> usize {
        let deadline = Instant::now() + ELECTION_TIMEOUT;
        loop {
            if let Some(leader) = self.agreed_leader(except) {
                return leader;
            }
            assert!(Instant::now() < deadline, "the members agree on no leader");
            thread::sleep(ELECTION_POLL);
        }
    }

    /// Returns the member that says it is the leader, if one does. Unlike [`leader`](Self::leader)
    /// it does not wait, and members that do not answer do not matter.
    pub fn declared_leader(&self) -> Option<usize> {
        self.members
            .iter()
            .position(|member| member.id_and_leader().is_some_and(|(id, leader)| id == leader))
    }

    fn agreed_leader(&self, except: Option<usize>) -> Option<usize> {
        let mut seen = Vec::new();
        for (index, member) in self.members.iter().enumerate() {
            if Some(index) != except {
                let (id, leader) = member.id_and_leader()?;
                seen.push((index, id, leader));
            }
        }
        let (_, _, leader) = seen.first()?;
        let agree = seen.iter().all(|(_, _, other)| other == leader);
        let found = seen.iter().find(|(_, id, _)| id == leader);
        found.filter(|_| agree).map(|(index, _, _)| *index)
    }
}

fn member_name(index: usize) -> String {
    format!("member-{index}")
}
