//! Three servers that form a cluster, each behind a gate through which its peers must pass.

use std::time::{Duration, Instant};

use crate::test_support::server::{Plan, free_ports};
use crate::test_support::{EtcdServer, Proxy, ServerOptions};
use crate::{EtcdKv, GrpcClient, GrpcConfig};

/// How many members a cluster has: the least of which one may be lost.
const MEMBERS: usize = 3;

/// How often other ports are tried when somebody else took ours.
const MAX_STARTS: usize = 5;

/// How long an election may take on a machine that is busy with other tests.
const ELECTION_TIMEOUT: Duration = Duration::from_secs(60);

/// How often members are asked who leads.
const ELECTION_POLL: Duration = Duration::from_millis(50);

/// Three members on loopback.
#[derive(Debug)]
pub struct EtcdCluster {
    members: Vec<EtcdServer>,
    gates: Vec<Proxy>,
}

impl EtcdCluster {
    /// A healthy cluster.
    pub fn three() -> Self {
        Self::with_options(&ServerOptions::default())
    }

    /// As [`three`](Self::three), with options for every member.
    pub fn with_options(options: &ServerOptions) -> Self {
        (0..MAX_STARTS)
            .find_map(|_| Self::start(options))
            .expect("one of several sets of free ports stays free")
    }

    fn start(options: &ServerOptions) -> Option<Self> {
        let plans: Vec<Plan> = (0..MEMBERS)
            .map(|index| Plan::new(&format!("member-{index}"), free_ports::<3>(), options))
            .collect();
        let gates: Vec<Proxy> = plans.iter().map(|it| Proxy::new(it.peer_address())).collect();
        let plans: Vec<Plan> =
            plans.into_iter().zip(&gates).map(|(plan, gate)| plan.behind(gate.port())).collect();
        let list = plans.iter().map(Plan::member).collect::<Vec<_>>().join(",");
        let members = plans.into_iter().map(|plan| EtcdServer::start(plan, &list)).collect();
        let mut cluster = Self { members, gates };
        let healthy = cluster.members.iter_mut().all(|it| it.wait_until_healthy().is_ok());
        healthy.then_some(cluster)
    }

    /// What a client needs to talk to all members.
    pub fn client_config(&self) -> GrpcConfig {
        GrpcConfig::new(self.members.iter().map(EtcdServer::endpoint))
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
        let pid = self.members[index].pid().expect("a member that is cut off runs");
        self.gates[index].cut();
        for (other, gate) in self.gates.iter().enumerate() {
            if other != index {
                gate.cut_from(pid);
            }
        }
    }

    /// Takes back every cut.
    pub fn heal(&self) {
        for gate in &self.gates {
            gate.open();
        }
    }

    /// The place of the leader that members other than `except` agree on, waited for.
    pub async fn leader(&self, except: Option<usize>) -> usize {
        let deadline = Instant::now() + ELECTION_TIMEOUT;
        loop {
            if let Some(leader) = self.agreed_leader(except).await {
                return leader;
            }
            assert!(Instant::now() < deadline, "the members agree on no leader");
            tokio::time::sleep(ELECTION_POLL).await;
        }
    }

    async fn agreed_leader(&self, except: Option<usize>) -> Option<usize> {
        let mut seen = Vec::new();
        for (index, member) in self.members.iter().enumerate() {
            if Some(index) != except {
                let client = GrpcClient::new(&member.client_config()).ok()?;
                let status = client.status().await.ok()?;
                seen.push((index, status.member_id, status.leader));
            }
        }
        let (_, _, leader) = *seen.first()?;
        let agree = seen.iter().all(|(_, _, other)| *other == leader);
        let found = seen.iter().find(|(_, id, _)| *id == leader);
        found.filter(|_| agree).map(|(index, _, _)| *index)
    }
}
