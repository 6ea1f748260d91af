//! A PostgreSQL server: started with a private data directory, signalled, restarted, promoted.
//!
//! The server refuses to run as root, so it runs as [`UNPRIVILEGED`] if this process is root. It
//! trusts every connection from this machine unless a test asks for other rules.

use std::fs::{self, File};
use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::test_support::server::{Process, free_ports};
use crate::test_support::{ServerTls, TestDirectory, send_signal};

/// The user and the group of a server that root starts: those that own nothing, on every system.
const UNPRIVILEGED: &str = "65534";

/// The superuser of every server.
const USER: &str = "gossip";

/// Where Debian has the programs of each version; they are not on the search path.
const DEBIAN: &str = "/usr/lib/postgresql";

/// How long a server may take to start, or to end. It takes a tenth of a second on an idle machine;
/// this is for one that compiles and tests on every core.
const TIMEOUT: Duration = Duration::from_secs(60);

/// How often a starting server is asked.
const POLL: Duration = Duration::from_millis(20);

/// How often other ports are tried when ours are taken between finding and using them.
const MAX_STARTS: usize = 5;

/// How much of a server's log is shown when a test fails.
const SHOWN_LOG_LINES: usize = 40;

const LOG: &str = "postgres.log";

/// How a server is started.
#[derive(Clone, Debug, Default)]
pub struct PostgresOptions {
    /// Settings, as `synchronous_commit=off`.
    pub settings: Vec<String>,
    /// Serves clients over TLS.
    pub tls: Option<ServerTls>,
    /// The lines of `pg_hba.conf`, if not every connection is to be trusted.
    pub access: Vec<String>,
}

/// A server that runs until its value is dropped.
#[derive(Debug)]
pub struct PostgresServer {
    options: PostgresOptions,
    port: u16,
    process: Option<Process>,
    directory: TestDirectory,
}

impl PostgresServer {
    /// A running server with an empty database.
    pub fn single() -> Self {
        Self::with_options(&PostgresOptions::default())
    }

    /// As [`single`](Self::single), with options.
    pub fn with_options(options: &PostgresOptions) -> Self {
        let directory = directory();
        let data = directory.path().join("data");
        let user = format!("--username={USER}");
        let mut init = program("initdb");
        init.args([&*user, "--auth=trust", "--no-sync", "--no-locale", "--encoding=UTF8"]);
        run(init.arg("-D").arg(&data));
        if !options.access.is_empty() {
            write_private(&data.join("pg_hba.conf"), &options.access.join("\n"));
        }
        if let Some(tls) = &options.tls {
            write_tls(&data, tls);
        }
        Self::start(directory, options)
    }

    /// A running standby of `primary`, which waits for it in every synchronous commit.
    pub fn synchronous_standby(primary: &Self) -> Self {
        let directory = directory();
        let data = directory.path().join("data");
        let mut backup = program("pg_basebackup");
        let port = format!("--port={}", primary.port);
        let user = format!("--username={USER}");
        backup.args(["--host=127.0.0.1", &port, &user, "--checkpoint=fast", "--no-sync"]);
        backup.args(["--write-recovery-conf", "--create-slot", "--slot=s1", "-D"]).arg(&data);
        run(&mut backup);
        let standby = Self::start(directory, &primary.options);
        primary.sql("ALTER SYSTEM SET synchronous_standby_names = 'FIRST 1 (*)'");
        primary.sql("SELECT pg_reload_conf()");
        let is_synchronous = "SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'";
        let deadline = Instant::now() + TIMEOUT;
        while primary.sql(is_synchronous) != "1" {
            assert!(Instant::now() < deadline, "no synchronous standby:\n{}", standby.log());
            thread::sleep(POLL);
        }
        standby
    }

    /// The address for clients.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The superuser.
    pub fn user(&self) -> &'static str {
        USER
    }

    /// Its process id, while it runs.
    pub fn pid(&self) -> Option<u32> {
        self.process.as_ref().map(|it| it.server.id())
    }

    /// Runs statements and returns their rows, with `|` between columns.
    ///
    /// # Panics
    ///
    /// If one fails.
    pub fn sql(&self, text: &str) -> String {
        let mut psql = program("psql");
        let port = self.port.to_string();
        psql.args(["-h", "127.0.0.1", "-p", &port, "-U", USER, "-d", "postgres"]);
        psql.args(["-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-c", text]);
        run(&mut psql).trim_end().to_owned()
    }

    /// Replaces its certificate for new connections, and ends all others.
    pub fn replace_tls(&self, tls: &ServerTls) {
        write_tls(&self.data(), tls);
        self.sql("SELECT pg_reload_conf()");
        let others = "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity \
                      WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'";
        self.sql(others);
    }

    /// Ends it as a crash would (`SIGKILL`). Its data stays, and its backends end.
    pub fn kill(&mut self) {
        self.process = None;
    }

    /// Ends one of its processes as a crash would, by its id from `pg_stat_activity`, and waits
    /// until the server has ended all others, recovered, and accepts connections again.
    pub fn kill_backend(&mut self, pid: u32) {
        let before = self.recovery_count();
        send_signal("KILL", pid);
        let deadline = Instant::now() + TIMEOUT;
        while self.recovery_count() == before {
            assert!(Instant::now() < deadline, "postgres did not notice:\n{}", self.log());
            thread::sleep(POLL);
        }
        self.wait_until_accepting();
    }

    /// Shuts it down cleanly and starts it again with its data.
    pub fn restart(&mut self) {
        self.end("INT");
        self.restart_killed();
    }

    /// Starts it again after [`kill`](Self::kill), with its data.
    pub fn restart_killed(&mut self) {
        // Until the last process of the killed server has ended, the new one refuses to start.
        let deadline = Instant::now() + TIMEOUT;
        loop {
            self.process = Some(self.spawn());
            if self.wait_until_ready() {
                return;
            }
            assert!(Instant::now() < deadline, "postgres does not start:\n{}", self.log());
        }
    }

    /// Makes a standby the primary, and waits until it is.
    pub fn promote(&self) {
        run(program("pg_ctl").args(["-w", "promote", "-D"]).arg(self.data()));
    }

    /// Waits until the server accepts connections, for example after recovery.
    ///
    /// # Panics
    ///
    /// If it has ended.
    pub fn wait_until_accepting(&mut self) {
        assert!(self.wait_until_ready(), "postgres ended:\n{}", self.log());
    }

    /// The last lines of its log.
    pub fn log(&self) -> String {
        let text = fs::read(self.directory.path().join(LOG)).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(SHOWN_LOG_LINES)..].join("\n")
    }

    /// How often it has recovered from the crash of one of its processes.
    fn recovery_count(&self) -> usize {
        let text = fs::read(self.directory.path().join(LOG)).unwrap_or_default();
        String::from_utf8_lossy(&text).matches("all server processes terminated").count()
    }

    fn start(directory: TestDirectory, options: &PostgresOptions) -> Self {
        let mut server = Self { options: options.clone(), port: 0, process: None, directory };
        for _ in 0..MAX_STARTS {
            [server.port] = free_ports();
            server.process = Some(server.spawn());
            if server.wait_until_ready() {
                return server;
            }
        }
        panic!("postgres did not start on any of {MAX_STARTS} ports:\n{}", server.log());
    }

    fn data(&self) -> PathBuf {
        self.directory.path().join("data")
    }

    fn spawn(&self) -> Process {
        let log = self.directory.path().join(LOG);
        let log = File::options().create(true).append(true).open(log);
        let log = log.expect("our own directory is writable");
        let copy = log.try_clone().expect("a file that was just opened can be shared");
        let sockets = self.data();
        let mut settings = vec![
            format!("port={}", self.port),
            "listen_addresses=127.0.0.1".to_owned(),
            format!("unix_socket_directories={}", sockets.display()),
            // A killed process loses nothing that it wrote to a file; a power cut is not tested.
            "fsync=off".to_owned(),
            "max_connections=200".to_owned(),
            "shared_buffers=64MB".to_owned(),
        ];
        if self.options.tls.is_some() {
            settings.push("ssl=on".to_owned());
        }
        settings.extend(self.options.settings.iter().cloned());
        let mut command = program("postgres");
        command.arg("-D").arg(&sockets);
        for setting in settings {
            command.arg("-c").arg(setting);
        }
        command.stdin(Stdio::null()).stdout(copy).stderr(log);
        let server = command.spawn().expect("the program was found when the data were made");
        // The signal ends the backends as well and leaves no shared memory. A server in a static
        // variable is never dropped, and its data would stay.
        let directory = self.directory.path().display().to_string();
        Process::watched(server, |pid| {
            format!(
                "kill -QUIT {pid}; for _ in 1 2 3 4 5 6 7 8 9; do \
                 kill -0 {pid} || break; sleep 0.2; done; rm -rf '{directory}'"
            )
        })
    }

    /// Polls until the server accepts connections; `false` if it has ended instead.
    fn wait_until_ready(&mut self) -> bool {
        let deadline = Instant::now() + TIMEOUT;
        let port = self.port.to_string();
        loop {
            let mut ready = program("pg_isready");
            ready.args(["-q", "-h", "127.0.0.1", "-p", &port]);
            if ready.status().is_ok_and(|status| status.success()) {
                return true;
            }
            if self.process.as_mut().is_none_or(Process::has_ended) {
                return false;
            }
            assert!(Instant::now() < deadline, "postgres is not ready:\n{}", self.log());
            thread::sleep(POLL);
        }
    }

    /// Ends the server by a signal and waits for it; kills it if it does not end.
    fn end(&mut self, signal: &str) {
        let Some(mut process) = self.process.take() else { return };
        if !process.has_ended() {
            send_signal(signal, process.server.id());
        }
        let deadline = Instant::now() + TIMEOUT;
        while !process.has_ended() && Instant::now() < deadline {
            thread::sleep(POLL);
        }
    }
}

impl Drop for PostgresServer {
    #[expect(clippy::print_stderr, reason = "a failed test shows what its server said")]
    fn drop(&mut self) {
        if thread::panicking() {
            eprintln!("postgres said at the end:\n{}", self.log());
        }
        self.end("QUIT");
    }
}

/// Whether this process is root, which the server refuses to be.
fn is_root() -> bool {
    let output = Command::new("id").arg("-u").output();
    output.is_ok_and(|output| output.stdout.trim_ascii() == b"0")
}

/// A program of PostgreSQL, as a user that the server accepts and with nothing of our environment.
fn program(name: &str) -> Command {
    let path = find(name);
    let mut command = match is_root() {
        true => {
            let mut command = Command::new("setpriv");
            command.args(["--reuid", UNPRIVILEGED, "--regid", UNPRIVILEGED, "--clear-groups"]);
            command.arg(path);
            command
        }
        false => Command::new(path),
    };
    command.env_clear().envs(std::env::var_os("PATH").map(|path| ("PATH", path)));
    command.current_dir("/");
    command
}

/// The newest version of a program, or the one on the search path.
fn find(name: &str) -> PathBuf {
    let versions = fs::read_dir(DEBIAN).into_iter().flatten().flatten();
    let mut found: Vec<(u32, PathBuf)> = versions
        .filter_map(|entry| {
            let version = entry.file_name().to_str()?.parse().ok()?;
            Some((version, entry.path().join("bin").join(name)))
        })
        .filter(|(_, path)| path.exists())
        .collect();
    found.sort_unstable();
    found.pop().map_or_else(|| PathBuf::from(name), |(_, path)| path)
}

/// A directory that the user of the server may write.
fn directory() -> TestDirectory {
    let directory = TestDirectory::new("postgres");
    if is_root() {
        give_away(directory.path());
    }
    directory
}

/// Makes the user of the server the owner.
fn give_away(path: &Path) {
    run(Command::new("chown").arg(format!("{UNPRIVILEGED}:{UNPRIVILEGED}")).arg(path));
}

fn write_tls(data: &Path, tls: &ServerTls) {
    write_private(&data.join("server.crt"), &tls.cert_pem);
    write_private(&data.join("server.key"), &tls.key_pem);
}

/// Writes a file that only the server's user reads.
fn write_private(path: &Path, text: &str) {
    fs::write(path, text).expect("our own directory is writable");
    let private = fs::Permissions::from_mode(0o600);
    fs::set_permissions(path, private).expect("our own file has permissions");
    if is_root() {
        give_away(path);
    }
}

/// Runs a program to its end and returns its output.
fn run(command: &mut Command) -> String {
    match command.stdin(Stdio::null()).output() {
        Ok(output) if output.status.success() => {
            String::from_utf8_lossy(&output.stdout).into_owned()
        }
        Ok(output) => panic!("{command:?}: {}", String::from_utf8_lossy(&output.stderr)),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            panic!("there is no PostgreSQL on this machine: run `cargo xtask setup`");
        }
        Err(error) => panic!("{command:?}: {error}"),
    }
}
