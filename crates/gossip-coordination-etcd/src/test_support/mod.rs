//! Real etcd servers for tests and benchmarks, a proxy and a network that cut them off, and workers
//! that go on meanwhile or are stopped.
//!
//! A server runs on free loopback ports with its data in a temporary directory. It ends with its
//! value, or with this process, whichever is first, and is only ever signalled by its process id.
//! A missing program is a failure with the command that installs it, never a silent skip.
//!
//! Everything here panics when the machine does not play along: it is for tests.

mod campaign;
mod cluster;
mod directory;
#[cfg(test)]
mod fake_grpc;
mod network;
mod proxy;
mod server;
mod stopped;

pub use self::campaign::{Campaign, Loss, Resumed, Verdict};
pub use self::cluster::EtcdCluster;
pub use self::directory::TestDirectory;
#[cfg(test)]
pub(crate) use self::fake_grpc::FakeGrpc;
pub use self::proxy::{Direction, Proxy};
pub use self::server::{EtcdServer, ServerOptions, ServerTls};
pub use self::stopped::{StoppedWorkers, Takeover, be_a_stopped_worker, wall_clock};
