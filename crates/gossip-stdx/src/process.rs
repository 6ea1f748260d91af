//! Processes of this host: who they are, and whether they are gone.
//!
//! A process is named by its number and its start, because numbers are used again. Both are valid
//! in one pid namespace of one boot of one host ([`Host`]). Everything that cannot be read is
//! `None` or [`Presence::Unknown`], never a guess: `/proc` may be missing, restricted, or that of
//! another pid namespace.

#[cfg(target_os = "linux")]
use std::fs;

#[cfg(target_os = "linux")]
use rustix::io::Errno;
#[cfg(target_os = "linux")]
use rustix::process::{Pid, getpid, test_kill_process};

#[cfg(target_os = "linux")]
use crate::spawn::stat::Stat;

/// Returns the name of this host, as the kernel knows it; bytes that are no UTF-8 are replaced.
#[must_use]
pub fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// A pid namespace of a running host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Host {
    /// A random number that the kernel chose when it was started.
    pub boot: [u8; 16],
    /// The number of the pid namespace. The kernel uses it again only when every process of the
    /// namespace is gone.
    pub pid_namespace: u64,
}

/// A process of this host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Process {
    /// Its number.
    pub pid: u32,
    /// When it was started, in clock ticks since the start of the host.
    pub started: u64,
}

/// Whether a process exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "callers decide about each")]
pub enum Presence {
    /// It exists.
    Present,
    /// It has ended. Its exit status may not have been read yet.
    Gone,
    /// It cannot be said.
    Unknown,
}

impl Host {
    /// Returns the host and the pid namespace of this process.
    #[must_use]
    pub fn current() -> Option<Self> {
        #[cfg(target_os = "linux")]
        {
            // Numbers in a `/proc` of another pid namespace are those of other processes.
            let own = fs::read_link("/proc/self").ok()?;
            if own.to_str()?.parse() != Ok(getpid().as_raw_nonzero().get()) {
                return None;
            }
            let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
            let namespace = fs::read_link("/proc/self/ns/pid").ok()?;
            let boot = uuid(boot.trim_end())?;
            Some(Self { boot, pid_namespace: namespace_number(namespace.to_str()?)? })
        }
        #[cfg(not(target_os = "linux"))]
        None
    }
}

impl Process {
    /// Returns the process with this number, if it exists.
    #[must_use]
    pub fn of(pid: u32) -> Option<Self> {
        #[cfg(target_os = "linux")]
        return Some(Self { pid, started: stat_of(pid)?.started });
        #[cfg(not(target_os = "linux"))]
        {
            let _ = pid;
            None
        }
    }

    /// Returns this process.
    #[must_use]
    pub fn current() -> Option<Self> {
        Self::of(std::process::id())
    }

    /// Returns whether the process, of this host and pid namespace, exists.
    #[must_use]
    pub fn presence(self) -> Presence {
        #[cfg(target_os = "linux")]
        {
            let Some(pid) = i32::try_from(self.pid).ok().and_then(Pid::from_raw) else {
                return Presence::Unknown;
            };
            // Not by `/proc` alone: with the mount option `hidepid` it does not show the processes
            // of other users.
            if test_kill_process(pid) == Err(Errno::SRCH) {
                return Presence::Gone;
            }
            match stat_of(self.pid) {
                Some(stat) if stat.started != self.started || stat.has_ended() => Presence::Gone,
                Some(_) => Presence::Present,
                // It may have ended meanwhile; the caller asks again.
                None => Presence::Unknown,
            }
        }
        #[cfg(not(target_os = "linux"))]
        Presence::Unknown
    }
}

#[cfg(target_os = "linux")]
fn stat_of(pid: u32) -> Option<Stat> {
    Stat::parse(&fs::read(format!("/proc/{pid}/stat")).ok()?)
}

/// Parses `pid:[4026531836]`.
#[cfg(any(target_os = "linux", test))]
fn namespace_number(link: &str) -> Option<u64> {
    link.strip_prefix("pid:[")?.strip_suffix(']')?.parse().ok()
}

/// Parses 32 hexadecimal digits with hyphens in between.
#[cfg(any(target_os = "linux", test))]
fn uuid(text: &str) -> Option<[u8; 16]> {
    let digits: String = text.chars().filter(|digit| *digit != '-').collect();
    // The parser accepts a sign.
    let whole = digits.len() == 32 && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    let number = u128::from_str_radix(&digits, 16).ok()?;
    whole.then(|| number.to_be_bytes())
}

#[cfg(test)]
mod tests {
    use super::{namespace_number, uuid};

    #[test]
    fn numbers_of_namespaces_and_boots_are_read_whole_or_not() {
        assert_eq!(namespace_number("pid:[4026531836]"), Some(4_026_531_836));
        for text in ["", "pid:[]", "pid:[12", "net:[12]", "pid:[-1]"] {
            assert_eq!(namespace_number(text), None, "{text}");
        }
        let boot = uuid("00000000-0000-0000-0000-0000000001ff").unwrap();
        assert_eq!(boot[14..], [1, 255]);
        for text in
            ["", "0-1", "0000000000000000000000000000000g", "+000000000000000000000000000000a"]
        {
            assert_eq!(uuid(text), None, "{text}");
        }
    }

    #[cfg(all(target_os = "linux", not(miri)))]
    mod of_linux {
        use std::os::unix::process::CommandExt as _;
        use std::process::Command;

        use crate::process::{Host, Presence, Process};

        #[test]
        fn this_process_is_present_and_one_with_its_number_is_not() {
            let own = Process::current().unwrap();
            assert_eq!(own.presence(), Presence::Present);
            let later = Process { started: own.started + 1, ..own };
            assert_eq!(later.presence(), Presence::Gone, "the number was used again");
            assert_eq!(Host::current(), Host::current());
            assert!(Host::current().is_some());
        }

        #[test]
        fn a_killed_process_is_gone_before_its_status_is_read() {
            let mut child = Command::new("sleep").arg("600").process_group(0).spawn().unwrap();
            let process = Process::of(child.id()).unwrap();
            assert_eq!(process.presence(), Presence::Present);
            child.kill().unwrap();
            // It becomes a zombie, which stays until `wait`.
            while process.presence() == Presence::Present {
                std::thread::yield_now();
            }
            assert_eq!(process.presence(), Presence::Gone);
            child.wait().unwrap();
            assert_eq!(process.presence(), Presence::Gone);
            assert_eq!(Process::of(process.pid).filter(|other| *other == process), None);
        }

        /// Process 1 of a host belongs to another user, as a rule: it is seen nevertheless.
        #[test]
        fn the_first_process_of_the_namespace_is_not_gone() {
            let started = Process::of(1).map_or(0, |first| first.started);
            assert_ne!(Process { pid: 1, started }.presence(), Presence::Gone);
        }
    }
}
