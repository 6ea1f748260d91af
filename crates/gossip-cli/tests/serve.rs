//! `gossip serve` in a real browser, with a real store and real workers.
//!
//! With `GOSSIP_SAVE_PICTURES=1` the pictures of docs/pictures are written anew.
#![cfg(feature = "serve")]
#![expect(clippy::unwrap_used, reason = "a file of tests")]

#[path = "support/browser.rs"]
mod browser;
mod support;

use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::Child;

use gossip::coordination::store::{Answer, Key, Read, Store as _, Txn};
use gossip::identity::RunId;
use gossip::store::Backend;
use rustix::process::Signal;
use serde_json::Value;

use browser::Browser;
use support::{Scratch, signal, wait_until};

/// An item takes as long as the file `delay` says, or `slow` for a slow worker. Item 700 fails
/// until `fixed` exists.
const HANDLER: &str = "d=delay; [ -e slow.$PPID ] && d=slow; sleep $(cat $d)
if [ $1 = 700 ] && [ ! -e fixed ]; then
  echo 'connecting to db-3.internal:5432' >&2
  echo 'error: connection refused (os error 111)' >&2; exit 3
fi
";

/// A server of a test; it ends on drop.
struct Served {
    child: Child,
    url: String,
}

impl Served {
    fn start(scratch: &Scratch, args: &[&str]) -> Self {
        let mut all = vec!["serve", "--listen"];
        let listen = args.first().filter(|it| it.starts_with("127.")).copied();
        all.push(listen.unwrap_or("127.0.0.1:0"));
        all.extend(&args[usize::from(listen.is_some())..]);
        let mut child = scratch.gossip(&all).spawn().unwrap();
        let mut url = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut url).unwrap();
        let url = url.trim().to_owned();
        if url.is_empty() {
            let mut why = String::new();
            child.stderr.take().unwrap().read_to_string(&mut why).unwrap();
            panic!("{why}");
        }
        Self { child, url }
    }

    fn base(&self) -> &str {
        self.url.split("/#").next().unwrap().trim_end_matches('/')
    }

    fn host(&self) -> &str {
        self.base().strip_prefix("http://").unwrap()
    }

    fn token(&self) -> &str {
        self.url.split("#token=").nth(1).unwrap()
    }

    /// Stops the server as Ctrl-C does.
    fn stop(mut self) {
        signal(&self.child, Signal::INT);
        assert_eq!(self.child.wait().unwrap().code(), Some(0));
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// Workers of a test; they end on drop.
struct Fleet(Vec<Child>);

impl Drop for Fleet {
    fn drop(&mut self) {
        for child in &mut self.0 {
            drop(child.kill());
            drop(child.wait());
        }
    }
}

fn worker(scratch: &Scratch, run: &str) -> Child {
    let log = File::create(scratch.path().join(format!("worker{}", rand()))).unwrap();
    let mut command = scratch.gossip(&["worker", run, "--jobs", "1"]);
    command.stdout(std::process::Stdio::null()).stderr(log).spawn().unwrap()
}

/// Returns a number that no other call returns.
fn rand() -> u64 {
    use std::sync::atomic::{AtomicU64, Ordering};
    static NEXT: AtomicU64 = AtomicU64::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

fn create(scratch: &Scratch, keys: &str, name: &str) -> String {
    std::fs::write(scratch.path().join("delay"), "0.02").unwrap();
    std::fs::write(scratch.path().join("slow"), "0.15").unwrap();
    std::fs::write(scratch.path().join("resize.sh"), HANDLER).unwrap();
    let args = ["run", "create", keys, "--shards", "24", "--lease", "4s", "--name", name];
    let made = scratch.run(&[&args[..], &["--", "sh", "resize.sh", "{}"]].concat());
    assert_eq!(made.code, Some(0), "{}", made.stderr);
    made.stdout.trim().to_owned()
}

fn status(scratch: &Scratch, run: &str) -> Value {
    let shown = scratch.run(&["run", "show", run, "--sample", "0s", "-o", "json"]);
    serde_json::from_str(&shown.stdout).unwrap()
}

/// Writes a picture of the page if that is asked for.
fn picture(browser: &Browser, name: &str) {
    if std::env::var_os("GOSSIP_SAVE_PICTURES").is_none() {
        return;
    }
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/pictures");
    std::fs::create_dir_all(&directory).unwrap();
    std::fs::write(directory.join(format!("serve-{name}.png")), browser.picture()).unwrap();
}

/// Sends a request without a browser, and returns the whole answer.
fn raw(served: &Served, text: &str) -> String {
    let mut stream = TcpStream::connect(served.host()).unwrap();
    stream.write_all(text.as_bytes()).unwrap();
    let mut reply = String::new();
    stream.read_to_string(&mut reply).unwrap();
    reply
}

#[test]
fn run_is_watched_to_its_end_with_a_killed_worker_and_a_retried_item() {
    let scratch = Scratch::with_short_leases();
    let Some(browser) = Browser::start(&scratch.path().join("profile"), &[]) else { return };
    // For the list.
    for (keys, name, script) in
        [("range:0..600", "nightly-index", "exit 0"), ("range:0..40", "reencrypt", "[ $1 != 7 ]")]
    {
        let args = ["exec", keys, "--name", name, "-j", "2", "--", "sh", "-c", script, "sh", "{}"];
        scratch.run(&args);
    }
    let run = create(&scratch, "range:0..2400", "thumbnails");
    // The page shows what one look at the store and the next have in common, so a shard that is
    // taken over must not be done before the next look.
    std::fs::write(scratch.path().join("delay"), "0.1").unwrap();
    std::fs::write(scratch.path().join("slow"), "0.8").unwrap();
    let mut fleet = Fleet((0..4).map(|_| worker(&scratch, &run)).collect());
    // One worker is slow.
    let slow = fleet.0[3].id();
    File::create(scratch.path().join(format!("slow.{slow}"))).unwrap();
    let served = Served::start(&scratch, &[]);
    browser.open(&served.url);

    // The token is not in the address any more.
    browser.until_text("td", "thumbnails");
    assert_eq!(browser.script("return location.href"), format!("{}/runs", served.base()).as_str());
    browser.until_text("td .badge", "active");
    browser.until_text("td .badge", "incomplete");
    picture(&browser, "runs");

    browser.script("[...document.querySelectorAll('td a')].find((it) => it.textContent === 'thumbnails').click()");
    browser.until_text("h1", "thumbnails");
    browser.until_text("#workers td .badge", "slow");
    browser.until_text(".attention", "is slow");
    browser.until_text("#failures .failure", "700");
    browser.until_text("#failures pre", "connection refused");
    browser.until("history", "document.querySelector('#throughput polyline')");
    browser.until_text(".attention", "1 item failed");
    picture(&browser, "run");

    // A killed worker: its cells become another's.
    let victim = fleet.0.remove(0);
    let pid = victim.id();
    let shown = format!("pid {pid}");
    browser.until_text("#workers td", &shown);
    let mut victim = victim;
    signal(&victim, Signal::KILL);
    victim.wait().unwrap();
    let gone = format!(
        "![...document.querySelectorAll('#workers table[aria-label^=Workers] td')]\
         .some((it) => it.textContent.includes('{shown}'))"
    );
    browser.until("other workers take the shards", &gone);
    browser.script("document.querySelector('#workers input[type=checkbox]').click()");
    browser.until_text("#workers td", "takeover");
    browser.script("document.querySelector('#workers input[type=checkbox]').click()");

    request_a_split(&browser, &run);

    // The failed item is tried again, and succeeds.
    File::create(scratch.path().join("fixed")).unwrap();
    browser.click("#failures .failure button[data-action=retry]");
    browser.until_text("#dialog pre", &format!("gossip shard unpark {run}"));
    picture(&browser, "retry");
    browser.click("#confirm");
    browser.until_text("#dialog", "to be tried again");
    // On a busy machine the others may have ended: everything else was done.
    fleet.0.push(worker(&scratch, &run));
    browser.press(&["\u{e007}"]);
    browser.until("the dialog closes", "!document.getElementById('dialog').open");
    browser.until("no failure is left", "document.getElementById('failures').hidden");

    std::fs::write(scratch.path().join("delay"), "0").unwrap();
    std::fs::write(scratch.path().join("slow"), "0").unwrap();
    browser.until_text("h1 .badge", "done");
    browser.until(
        "all cells are done",
        "document.getElementById('keyspace').dataset.states === 'done'",
    );
    browser.click("#verify");
    browser.until_text("main p[role=status]", "complete: 2,400 keys");
    picture(&browser, "done");
    browser.scheme("dark");
    browser.until("the dark scheme", "matchMedia('(prefers-color-scheme: dark)').matches");
    picture(&browser, "dark");
    assert_eq!(status(&scratch, &run)["status"], "done");
    // The browser itself writes each refusal of a split into its console.
    let is_refusal = |line: &String| line.contains("/api/v1/actions") && line.contains("409");
    let console: Vec<String> = browser.console().into_iter().filter(|it| !is_refusal(it)).collect();
    assert_eq!(console, Vec::<String>::new());
}

/// Sends a request to a lease holder. It is refused while the request of an idle worker is pending,
/// and if the shard was completed in the meantime.
fn request_a_split(browser: &Browser, run: &str) {
    for _ in 0..20 {
        browser.until("a shard is held", "document.querySelector('#workers [data-action=split]')");
        browser.click("#workers button[data-action=split]");
        browser.until_text("#dialog pre", &format!("gossip shard split {run}"));
        browser.click("#confirm");
        browser.until("the request was answered", "!document.getElementById('confirm').disabled");
        let is_accepted = browser.script("return document.getElementById('confirm').hidden");
        let text = browser.text("#dialog");
        browser.press(&["\u{e00c}"]);
        browser.until("the dialog closes", "!document.getElementById('dialog').open");
        if is_accepted == true {
            assert!(text.contains("requested"), "{text}");
            return;
        }
    }
    panic!("every request to split a shard was refused");
}

#[test]
fn run_is_paused_and_cancelled_with_the_keyboard_in_a_narrow_window() {
    let scratch = Scratch::with_short_leases();
    let Some(browser) = Browser::start(&scratch.path().join("profile"), &[]) else { return };
    let run = create(&scratch, "range:0..100000", "keyboard");
    let _fleet = Fleet(vec![worker(&scratch, &run)]);
    let served = Served::start(&scratch, &[]);
    browser.resize(380, 900);
    browser.open(&served.url);
    browser.until_text("td", "keyboard");
    browser.script("document.querySelector('td a').focus()");
    browser.press(&["\u{e007}"]);
    browser.until_text("h1", "keyboard");
    browser.until_text("#workers td", "pid");
    let overflow = "document.documentElement.scrollWidth - document.documentElement.clientWidth";
    assert_eq!(browser.script(&format!("return {overflow}")), 0, "the page scrolls sideways");
    picture(&browser, "narrow");

    browser.script("document.querySelector('button[data-action=pause]').focus()");
    browser.press(&["\u{e007}"]);
    browser.until_text("#dialog pre", &format!("gossip run pause {run}"));
    // The focus is on Back; the button to confirm follows.
    browser.press(&["\u{e004}", "\u{e007}"]);
    browser.until_text("#dialog", "paused");
    browser.press(&["\u{e00c}"]);
    browser.until_text("h1 .badge", "paused");
    assert_eq!(status(&scratch, &run)["status"], "paused");

    // The arrow keys read the map aloud.
    browser.script("document.querySelector('canvas.map').focus()");
    browser.press(&["\u{e014}"]);
    browser.until_text("#keyspace .tip", "At 0.");

    browser.click("button[data-action=cancel]");
    browser.until_text("#dialog pre", &format!("gossip run cancel {run}"));
    browser.click("#confirm");
    browser.until_text("#dialog", "cancelled");
    browser.press(&["\u{e00c}"]);
    browser.until_text("h1 .badge", "cancelled");
    assert_eq!(status(&scratch, &run)["status"], "cancelled");
    assert_eq!(browser.console(), Vec::<String>::new());
}

#[test]
fn page_survives_a_restart_of_the_server_and_a_lost_store() {
    let scratch = Scratch::with_short_leases();
    let Some(browser) = Browser::start(&scratch.path().join("profile"), &[]) else { return };
    let run = create(&scratch, "range:0..100000", "restart");
    let _fleet = Fleet(vec![worker(&scratch, &run)]);
    let tokens = scratch.path().join("tokens");
    std::fs::write(&tokens, "read a-token-to-look-with\noperate a-token-to-operate-with\n")
        .unwrap();
    std::process::Command::new("chmod").arg("600").arg(&tokens).status().unwrap();
    let args = ["--token-file", tokens.to_str().unwrap(), "--read-only"];
    let served = Served::start(&scratch, &args);
    let (base, host) = (served.base().to_owned(), served.host().to_owned());
    browser.open(&format!("{base}/runs/{run}#token=a-token-to-look-with"));
    browser.until_text("h1", "restart");
    // Read-only.
    browser.until_text("#session", "read-only");
    browser
        .until("pause is disabled", "document.querySelector('button[data-action=pause]').disabled");
    assert_eq!(browser.console(), Vec::<String>::new());

    served.stop();
    browser.until_text("#banner", "connection to the server is lost");
    let served = Served::start(&scratch, &[&[host.as_str()][..], &args].concat());
    browser.until(
        "the page is connected again",
        "document.getElementById('banner').textContent === ''",
    );
    let keys = "[...document.querySelectorAll('dt')].find((it) => it.textContent === 'Keys').nextSibling.textContent";
    let before = browser.script(&format!("return {keys}"));
    browser.until("keys advance", &format!("{keys} !== {before}"));

    // The file of the store vanishes, and comes back.
    let away = scratch.store().with_extension("away");
    std::fs::rename(scratch.store(), &away).unwrap();
    browser.until_text("#banner", "store cannot be read");
    picture(&browser, "unreadable");
    std::fs::rename(&away, scratch.store()).unwrap();
    browser
        .until("the store is read again", "document.getElementById('banner').textContent === ''");
    browser.open(&format!("{base}/store"));
    browser.until_text("dd", "store.db");
    browser.until_text("dd", "at most 20");
    picture(&browser, "store");
    browser.open(&format!("{base}/workers"));
    browser.until_text("td .badge", "working");
    picture(&browser, "workers");
    drop(served);
}

const KEYS: &str = "[...document.querySelectorAll('dt')].find((it) => it.textContent === 'Keys')\
                    ?.nextSibling.textContent";

/// Waits until the page was drawn again so many times.
fn wait_for_updates(browser: &Browser, count: usize) {
    for _ in 0..count {
        let before = browser.script(&format!("return {KEYS}"));
        browser.until("keys advance", &format!("{KEYS} !== {before}"));
    }
}

#[test]
fn focus_and_a_click_survive_the_updates_of_the_page() {
    let scratch = Scratch::with_short_leases();
    let Some(browser) = Browser::start(&scratch.path().join("profile"), &[]) else { return };
    let run = create(&scratch, "range:0..100000", "focus");
    let mut fleet = Fleet(vec![worker(&scratch, &run)]);
    let served = Served::start(&scratch, &[]);
    browser.open(&served.url);
    browser.until_text("td", "focus");
    browser.open(&format!("{}/runs/{run}", served.base()));
    let split = "#workers button[data-action=split]";
    browser.until("a shard is held", &format!("document.querySelector('{split}')"));
    wait_for_updates(&browser, 2);
    browser.hold(split);
    wait_for_updates(&browser, 3);
    browser.let_go();
    browser.until_text("#dialog pre", &format!("gossip shard split {run}"));
    browser.press(&["\u{e00c}"]);
    browser.until("the dialog closes", "!document.getElementById('dialog').open");

    browser.script(&format!("(window.it = document.querySelector('{split}')).focus()"));
    // A second row appears, above or below.
    fleet.0.push(worker(&scratch, &run));
    browser.until("two rows", &format!("document.querySelectorAll('{split}').length === 2"));
    wait_for_updates(&browser, 3);
    let is_kept = browser.script("return it.isConnected && document.activeElement === it");
    assert_eq!(
        is_kept,
        true,
        "the focus is on {}",
        browser.script("return document.activeElement")
    );
    // It acts on the row in which it is.
    browser.press(&["\u{e007}"]);
    browser.until_text("#dialog pre", &format!("gossip shard split {run}"));
    assert_eq!(browser.console(), Vec::<String>::new());
}

#[test]
fn events_before_a_restart_of_the_server_are_shown() {
    let scratch = Scratch::with_short_leases();
    let Some(browser) = Browser::start(&scratch.path().join("profile"), &[]) else { return };
    let run = create(&scratch, "range:0..48", "events");
    // The first worker is killed while it processes an item.
    std::fs::write(scratch.path().join("delay"), "60").unwrap();
    let mut fleet = Fleet(vec![worker(&scratch, &run)]);
    let events = || scratch.run(&["events", &run]).stdout;
    wait_until("a shard is held", || events().contains("acquired"));
    let mut victim = fleet.0.remove(0);
    signal(&victim, Signal::KILL);
    victim.wait().unwrap();
    std::fs::write(scratch.path().join("delay"), "0.1").unwrap();
    fleet.0.push(worker(&scratch, &run));
    // The next worker of this host revokes the lease before it claims. All of it has happened when
    // the server starts.
    wait_until("its lease is revoked", || events().contains("revoked"));
    wait_until("the end", || status(&scratch, &run)["status"] == "done");
    let first = Served::start(&scratch, &[]);
    first.stop();
    let served = Served::start(&scratch, &[]);
    browser.open(&served.url);
    browser.until_text("td", "events");
    browser.open(&format!("{}/runs/{run}", served.base()));
    browser.until_text("#events td", "lease revoked, ");
    browser.until_text("#events td", "active, ");
    browser.script("document.querySelector('#workers input[type=checkbox]').click()");
    browser.until_text("#workers td", "takeover");
    browser.until_text("#events td", "every shard is done");
    assert_eq!(browser.console(), Vec::<String>::new());
}

/// Changes a byte of the stored head of a run.
fn damage(scratch: &Scratch, run: &str) {
    let url = format!("sqlite:{}", scratch.store().display());
    let mut store = Backend::open(&url.parse().unwrap()).unwrap().store();
    let run = RunId::from_raw(u64::from_str_radix(run, 16).unwrap());
    let key = Key::RunHead { tenant: gossip::tenant_id("default").unwrap(), run };
    let read = store.read(vec![Read::Get(key)]).unwrap().remove(0);
    let Answer::Value(Some(head)) = read else { panic!("no head") };
    let mut bytes = head.bytes.to_vec();
    *bytes.last_mut().unwrap() ^= 1;
    let mut txn = Txn::new();
    txn.put(key, bytes);
    assert!(store.commit(vec![txn]).remove(0).is_ok());
}

#[test]
fn page_of_a_damaged_run_says_so_and_others_are_live() {
    let scratch = Scratch::with_short_leases();
    let Some(browser) = Browser::start(&scratch.path().join("profile"), &[]) else { return };
    let (damaged, other) =
        (create(&scratch, "range:0..100", "damaged"), create(&scratch, "range:0..99999", "other"));
    let _fleet = Fleet(vec![worker(&scratch, &other)]);
    let served = Served::start(&scratch, &[]);
    browser.open(&served.url);
    browser.until_text("td", "damaged");
    browser.open(&format!("{}/runs/{damaged}", served.base()));
    browser.until_text("h1 .badge", "active");
    damage(&scratch, &damaged);
    browser.until_text("h1 .badge", "unreadable");
    browser.until_text("main p", &format!("gossip run rm {damaged} --damaged"));
    browser.open(&format!("{}/store", served.base()));
    browser.until_text("dd", "readable");
    browser.until_text("main li", "a record of a run is damaged");
    browser.open(&served.url);
    browser.until_text("td .badge", "unreadable");
    browser.open(&format!("{}/runs/{other}", served.base()));
    browser.until_text("h1 .badge", "active");
    wait_for_updates(&browser, 2);
}

#[test]
fn eight_tabs_are_live_at_once() {
    let scratch = Scratch::with_short_leases();
    let Some(browser) = Browser::start(&scratch.path().join("profile"), &[]) else { return };
    let run = create(&scratch, "range:0..100000", "tabs");
    let _fleet = Fleet(vec![worker(&scratch, &run)]);
    let served = Served::start(&scratch, &[]);
    browser.open(&served.url);
    browser.until_text("td", "tabs");
    let keys = "[...document.querySelectorAll('dt')].find((it) => it.textContent === 'Keys')?.nextSibling.textContent";
    let tabs: Vec<_> = (0..8)
        .map(|_| {
            let tab = browser.new_tab();
            browser.open(&format!("{}/runs/{run}", served.base()));
            browser.until_text("h1", "tabs");
            tab
        })
        .collect();
    for tab in &tabs {
        browser.switch(tab);
        browser.until("keys are shown", keys);
        let before = browser.script(&format!("return {keys}"));
        browser.until("keys advance", &format!("{keys} !== {before}"));
    }
    assert_eq!(browser.console(), Vec::<String>::new());
}

#[test]
fn other_sites_can_neither_read_nor_change() {
    let scratch = Scratch::with_short_leases();
    let rules = "--host-resolver-rules=MAP evil.example 127.0.0.1";
    let Some(browser) = Browser::start(&scratch.path().join("profile"), &[rules]) else { return };
    let run = create(&scratch, "range:0..100", "target");
    let served = Served::start(&scratch, &[]);
    browser.open(&served.url);
    browser.until_text("td", "target");
    let port = served.host().rsplit(':').next().unwrap();
    // A name of another site that resolves to this machine.
    browser.open(&format!("http://evil.example:{port}/api/v1/runs"));
    browser.until_text("body", "wrong_host");
    drop(browser.console());

    // A page of another site sends a change that needs no preflight, with the cookie if it may.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let other = listener.local_addr().unwrap().port();
    let body = format!(r#"{{"action":"pause","run":"{run}"}}"#);
    let script = format!(
        "const sent = ['text/plain', 'application/json'].map((type) => fetch(\
         'http://{}/api/v1/actions', {{ method: 'POST', credentials: 'include', \
         mode: type === 'text/plain' ? 'no-cors' : 'cors', headers: {{ 'Content-Type': type }}, \
         body: '{body}' }}).then(() => 'sent', () => 'refused')); \
         Promise.all(sent).then((all) => {{ document.title = all.join(); }});",
        served.host()
    );
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let _ = stream.read(&mut [0; 4_096]);
            let page = format!("<!doctype html><title>x</title><script>{script}</script>");
            let head = "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nConnection: close\r\n";
            let _ = write!(stream, "{head}Content-Length: {}\r\n\r\n{page}", page.len());
        }
    });
    let before = refused(&metrics(&served));
    browser.open(&format!("http://evil.example:{other}/"));
    browser.until("both were answered", "document.title.includes(',')");
    // The first was sent and refused; the second needs a preflight, which is refused.
    assert_eq!(browser.script("return document.title"), "refused,refused");
    assert_eq!(status(&scratch, &run)["status"], "active");
    let metrics = metrics(&served);
    assert!(metrics.contains("gossip_serve_actions_total 0"), "{metrics}");
    assert!(refused(&metrics) >= before + 2, "{metrics}");
}

fn metrics(served: &Served) -> String {
    let (host, token) = (served.host(), served.token());
    let head = format!("GET /metrics HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n");
    raw(served, &format!("{head}Authorization: Bearer {token}\r\n\r\n"))
}

/// Returns how many requests were refused.
fn refused(metrics: &str) -> u64 {
    let rest = metrics.split("gossip_serve_refused_total ").nth(1).unwrap();
    rest.split_whitespace().next().unwrap().parse().unwrap()
}

#[test]
fn examples_of_the_documentation_run() {
    let scratch = Scratch::with_short_leases();
    if std::process::Command::new("curl").arg("--version").output().is_err() {
        let why = b"NOT RUN: the examples of docs/serve.md: curl is not installed\n";
        return std::io::stderr().write_all(why).unwrap();
    }
    let run = create(&scratch, "range:0..100", "documented");
    let served = Served::start(&scratch, &[]);
    let token = format!("Authorization: Bearer {}", served.token());
    wait_until("the run is read", || {
        let url = format!("{}/api/v1/runs/{run}", served.base());
        let got = scratch.command("curl").args(["-fsS", "-H", &token, &url]).output().unwrap();
        got.status.success()
    });
    let text = include_str!("../../../docs/serve.md");
    let blocks: Vec<_> = text.split("```sh\n").skip(1).collect();
    assert_eq!(blocks.len(), 4, "the examples");
    for block in blocks {
        let script = block.split("```").next().unwrap();
        let mut shell = scratch.command("sh");
        shell.args(["-ec", script]).env("URL", served.base()).env("TOKEN", served.token());
        let ran = support::finish(shell.env("RUN", &run).spawn().unwrap());
        assert_eq!(ran.code, Some(0), "{script}\n{}", ran.stderr);
        assert!(!ran.stdout.is_empty(), "{script}");
    }
    assert_eq!(status(&scratch, &run)["status"], "active");
}
