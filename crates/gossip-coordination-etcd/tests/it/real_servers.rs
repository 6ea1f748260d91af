//! The servers that the tests of this crate share, and namespaces of their own on them.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use gossip_coordination_etcd::{EtcdConfig, GrpcClient, GrpcConfig};
use gossip_testkit::test_support::{EtcdCluster, EtcdServer};

static SINGLE: LazyLock<EtcdServer> = LazyLock::new(EtcdServer::single);
static THREE: LazyLock<EtcdCluster> = LazyLock::new(EtcdCluster::three);

/// Which real servers.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Servers {
    Single,
    Three,
}

impl Servers {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Single => "one real etcd",
            Self::Three => "three real etcds",
        }
    }

    pub(crate) fn grpc_config(self) -> GrpcConfig {
        match self {
            Self::Single => GrpcConfig::new([SINGLE.endpoint()]),
            Self::Three => GrpcConfig::new(THREE.endpoints()),
        }
    }

    /// A client, for a runtime that is still to come.
    pub(crate) fn client(self) -> GrpcClient {
        GrpcClient::new(&self.grpc_config()).expect("our own servers have addresses")
    }

    /// Returns settings for an unused namespace.
    pub(crate) fn config(self) -> EtcdConfig {
        let endpoints = self.grpc_config().endpoints;
        config(endpoints.iter().map(|it| it.trim_start_matches("http://")))
    }
}

/// Returns settings for an unused namespace on these servers.
pub(crate) fn config<'e>(endpoints: impl IntoIterator<Item = &'e str>) -> EtcdConfig {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    let path = format!("test/{}", NEXT.fetch_add(1, Ordering::Relaxed));
    let config = EtcdConfig::new(endpoints, &path).expect("the usual settings work");
    EtcdConfig { max_clock_skew: Duration::ZERO, ..config }
}
