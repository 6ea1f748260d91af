//! `serve`: one page that shows the work, one API, one metrics endpoint.

use std::io::Write as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::Arc;

use gossip::identity::{RunId, TenantId};
use gossip::runtime::exec::ignores_hangup;
use gossip::runtime::{Density, Job};
use gossip::store::{Backend, StoreUrl};
use gossip_serve::{Access, Certificate, Role, ServeError, ServeLimits, ServeOptions, Server};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::args::{Global, ServeArgs};
use crate::certificate::{self, FinishedRun};
use crate::console::Console;
use crate::failure::{Code, Failure};
use crate::{listing, store, watch};

pub(crate) fn run(
    global: Global,
    args: &ServeArgs,
    console: &Arc<Console>,
) -> Result<Code, Failure> {
    let tokens = match &args.token_file {
        Some(file) => tokens(file)?,
        None => Vec::new(),
    };
    let is_loopback = args.listen.ip().is_loopback();
    let options = ServeOptions {
        listen: args.listen,
        tenant: store::tenant(&global)?,
        tenant_name: global.tenant.clone(),
        // Who can reach another address is not known, so changes have to be asked for.
        read_only: args.read_only.unwrap_or(!is_loopback),
        allow_hosts: args.allow_host.clone(),
        tokens,
        version: env!("GOSSIP_VERSION").to_owned(),
        limits: ServeLimits::default(),
    };
    // Under `nohup` the signal is ignored on purpose, and a handler would undo that.
    let hangup = (!ignores_hangup()).then_some(SIGHUP);
    // Before the server starts: a signal in between would kill it.
    let mut signals = Signals::new([SIGINT, SIGTERM].into_iter().chain(hangup))
        .map_err(|error| Failure::new(Code::Internal, "cannot handle signals").why(error))?;
    let tenant = options.tenant;
    let access = StoreAccess { global, tenant, console: Arc::clone(console) };
    // Its own message says more than that of the server.
    drop(store::open_existing(&access.global)?);
    let place = access.place();
    let read_only = if options.read_only { "; read-only" } else { "" };
    let server = Server::start(Arc::new(access), options).map_err(not_started)?;
    console.note(&format!("serving {place}{read_only}; Ctrl-C to stop"));
    let mut out = std::io::stdout().lock();
    // Only the address, because a script reads it; the rest goes to standard error.
    let written = writeln!(out, "{}", server.url()).and_then(|()| out.flush());
    written.map_err(|error| {
        Failure::new(Code::Internal, "cannot write to standard output").why(error)
    })?;
    // Until one of them arrives.
    let _signal = signals.forever().next();
    Ok(Code::Complete)
}

fn not_started(error: ServeError) -> Failure {
    match error {
        ServeError::Store(why) => Failure::new(Code::Store, "cannot open the store").why(why),
        ServeError::TokenNeeded => {
            Failure::new(Code::Usage, "other machines could connect, and there is no token")
                .next("give a file with tokens: --token-file FILE; see docs/serve.md")
        }
        error @ ServeError::TokenTooShort => {
            Failure::new(Code::Usage, "a token is too short").why(error)
        }
        error => Failure::new(Code::Usage, "cannot serve")
            .why(error)
            .next("choose another address: --listen 127.0.0.1:PORT"),
    }
}

/// Reads `read TOKEN` and `operate TOKEN` from a file, one in each line.
fn tokens(file: &Path) -> Result<Vec<(Role, String)>, Failure> {
    let unread = |error: &dyn std::fmt::Display| {
        Failure::new(Code::Usage, format!("cannot use `{}`", file.display())).why(error)
    };
    let mode = std::fs::metadata(file).map_err(|error| unread(&error))?.mode();
    // Each user who can read the file could change runs.
    if mode & 0o077 != 0 {
        return Err(
            unread(&"other users can read it").next(format!("chmod 600 {}", file.display()))
        );
    }
    let text = std::fs::read_to_string(file).map_err(|error| unread(&error))?;
    let lines = text.lines().enumerate().map(|(index, line)| (index + 1, line.trim()));
    let lines = lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
    let tokens = lines.map(|(number, line)| match line.split_once(' ') {
        Some(("read", token)) => Ok((Role::Read, token.trim().to_owned())),
        Some(("operate", token)) => Ok((Role::Operate, token.trim().to_owned())),
        _ => Err(unread(&format!("line {number}: expected `read TOKEN` or `operate TOKEN`"))),
    });
    let tokens = tokens.collect::<Result<Vec<_>, _>>()?;
    if tokens.is_empty() {
        return Err(unread(&"it has no token"));
    }
    Ok(tokens)
}

/// The store of the command, for the server.
struct StoreAccess {
    global: Global,
    tenant: TenantId,
    console: Arc<Console>,
}

impl Access for StoreAccess {
    fn open(&self) -> Result<Backend, String> {
        store::open_existing(&self.global).map_err(text)
    }

    fn place(&self) -> String {
        match store::url(&self.global) {
            Ok(StoreUrl::Memory { .. }) => "memory".to_owned(),
            Ok(StoreUrl::Sqlite { path, .. }) => path.display().to_string(),
            // Without user and password: the text is part of a page.
            Ok(StoreUrl::Etcd(config)) => format!("etcd {}", config.endpoints.join(", ")),
            Ok(StoreUrl::Postgres(config)) => {
                format!("postgres database {} on port {}", config.database, config.port)
            }
            // There may be more kinds of stores.
            Ok(_) | Err(_) => "unknown".to_owned(),
        }
    }

    fn check(&self) -> Result<(), String> {
        match store::missing_file(&self.global) {
            Some(path) => Err(format!("{path}: no such file")),
            None => Ok(()),
        }
    }

    fn density(&self, job: &Job) -> Density {
        watch::density_of_job(job)
    }

    fn command(&self, job: &Job) -> String {
        listing::typed(&job.command)
    }

    fn certificate(&self, run: RunId) -> Result<Certificate, String> {
        let backend = store::open_existing(&self.global).map_err(text)?;
        let coordinator = &mut backend.coordinator();
        let run = FinishedRun {
            coordinator,
            tenant: self.tenant,
            run,
            console: &self.console,
            states_command: true,
        };
        let (text, found) = certificate::in_memory(run).map_err(text)?;
        let (summary, is_complete) = (certificate::summary(&found), found.is_complete());
        Ok(Certificate { text, summary, is_complete })
    }
}

/// Returns a failure as one line.
fn text(failure: Failure) -> String {
    let Failure { what, why, next, .. } = failure;
    let parts = [Some(what), why, next].into_iter().flatten();
    parts.collect::<Vec<_>>().join(": ")
}
