//! Real servers for tests and benchmarks, and a proxy and a network that cut them off.
//!
//! A server runs on free loopback ports with its data in a temporary directory. It ends with its
//! value, or with this process, whichever is first, and is only ever signalled by its process id.
//! A missing program is a failure with the command that installs it, never a silent skip.
//!
//! Everything here panics when the machine does not support it: it is for tests.

mod cluster;
mod directory;
mod network;
mod postgres;
mod proxy;
mod s3;
mod server;

pub use self::cluster::EtcdCluster;
pub use self::directory::TestDirectory;
pub use self::postgres::{PostgresOptions, PostgresServer};
pub use self::proxy::{Direction, Proxy};
pub use self::s3::S3Server;
pub use self::server::{EtcdServer, ServerOptions, ServerTls, send_signal};
