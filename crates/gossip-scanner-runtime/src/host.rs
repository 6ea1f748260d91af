//! The processes of this host: the worker's own, and whether that of another worker is gone.
//!
//! Only a worker of the same host and pid namespace can be looked up. Whatever cannot be read is
//! unknown, and an unknown process is treated like one that exists.

use gossip_coordination::{ProcessId, ShortText, WorkerLabel, WorkerProcess};
use gossip_stdx::process::{self, Process};
use gossip_stdx::spawn;

/// Whether the process of a worker exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "a worker is treated differently in each case")]
pub enum Presence {
    /// It exists.
    Present,
    /// It is gone, but the process that ends its commands is not: a command may still run.
    Ending,
    /// Both are gone.
    Gone,
    /// It cannot be said: it is a process of another host or container, or `/proc` is not readable.
    Unknown,
}

/// The process that failure records name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ProcessName {
    /// The name of its host; empty if unknown.
    pub(crate) host: Box<str>,
    /// Its id; zero if unknown.
    pub(crate) pid: u32,
}

impl ProcessName {
    /// Returns the name of this process.
    pub(crate) fn current() -> Self {
        Self { host: process::host_name().into(), pid: std::process::id() }
    }
}

/// Looks up processes.
pub trait Host: Sync {
    /// Returns the process of this worker, for the registry.
    fn process(&self) -> Option<WorkerProcess>;

    /// Returns whether the process of a worker exists.
    fn presence(&self, process: &WorkerProcess) -> Presence;
}

/// Looks nothing up: a lease of a worker that is gone is waited for.
impl Host for () {
    fn process(&self) -> Option<WorkerProcess> {
        None
    }

    fn presence(&self, _process: &WorkerProcess) -> Presence {
        Presence::Unknown
    }
}

/// The machine or container in which this process runs.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemHost;

impl Host for SystemHost {
    fn process(&self) -> Option<WorkerProcess> {
        let process::Host { boot, pid_namespace } = process::Host::current()?;
        let watcher = match spawn::watcher_id() {
            // Without its watcher the process would be taken for one without commands.
            Some(pid) => Some(id_of(Process::of(pid)?)),
            None => None,
        };
        let process = id_of(Process::current()?);
        // Jobs are added by the worker.
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let version = ShortText::cut(env!("CARGO_PKG_VERSION"));
        let label = Some(WorkerLabel { host: ShortText::cut(&host), version, jobs: 0 });
        Some(WorkerProcess { boot, pid_namespace, process, watcher, label })
    }

    fn presence(&self, process: &WorkerProcess) -> Presence {
        let WorkerProcess { boot, pid_namespace, process, watcher, label: _ } = *process;
        if process::Host::current() != Some(process::Host { boot, pid_namespace }) {
            return Presence::Unknown;
        }
        match (presence_of(process), watcher.map(presence_of)) {
            (process::Presence::Present, _) => Presence::Present,
            (process::Presence::Gone, None | Some(process::Presence::Gone)) => Presence::Gone,
            (process::Presence::Gone, Some(process::Presence::Present)) => Presence::Ending,
            (process::Presence::Unknown, _) | (_, Some(process::Presence::Unknown)) => {
                Presence::Unknown
            }
        }
    }
}

fn id_of(Process { pid, started }: Process) -> ProcessId {
    ProcessId { pid, started }
}

fn presence_of(ProcessId { pid, started }: ProcessId) -> process::Presence {
    Process { pid, started }.presence()
}

#[cfg(test)]
mod tests {
    use gossip_coordination::{ProcessId, WorkerProcess};

    use super::{Host as _, Presence, SystemHost};

    #[cfg(target_os = "linux")]
    #[test]
    fn a_process_is_looked_up_only_in_its_own_host_and_namespace() {
        let own = SystemHost.process().unwrap();
        assert_eq!(SystemHost.presence(&own), Presence::Present);
        let started = own.process.started + 1;
        let gone = ProcessId { started, ..own.process };
        let ended = WorkerProcess { process: gone, watcher: None, ..own };
        assert_eq!(SystemHost.presence(&ended), Presence::Gone);
        let watched = |watcher| WorkerProcess { watcher: Some(watcher), ..ended };
        assert_eq!(SystemHost.presence(&watched(gone)), Presence::Gone);
        assert_eq!(SystemHost.presence(&watched(own.process)), Presence::Ending);
        let elsewhere = WorkerProcess { boot: [0; 16], ..ended };
        assert_eq!(SystemHost.presence(&elsewhere), Presence::Unknown);
        let contained = WorkerProcess { pid_namespace: own.pid_namespace + 1, ..ended };
        assert_eq!(SystemHost.presence(&contained), Presence::Unknown);
    }
}
