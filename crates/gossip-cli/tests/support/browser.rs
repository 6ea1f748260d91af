//! A headless browser, through the WebDriver protocol of its driver.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

/// Upper bound of a wait for something on the page.
const WAIT: Duration = Duration::from_secs(180);

/// Interval of the looks.
const POLL: Duration = Duration::from_millis(100);

/// A browser with its driver; both end on drop.
pub(crate) struct Browser {
    driver: Child,
    port: u16,
    session: String,
    profile: PathBuf,
}

impl Browser {
    /// Starts a browser; `None` with a message if there is none on this machine.
    pub(crate) fn start(profile: &Path, arguments: &[&str]) -> Option<Self> {
        let driver = Command::new("chromedriver")
            .arg("--port=0")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn();
        let Ok(mut driver) = driver else {
            let why = b"NOT RUN: the page in a browser: chromedriver is not installed\n";
            std::io::stderr().write_all(why).unwrap();
            return None;
        };
        let mut lines = BufReader::new(driver.stdout.take().unwrap()).lines();
        let port = lines.by_ref().map_while(Result::ok).find_map(|line| {
            let (_, port) = line.split_once("successfully on port ")?;
            port.trim_end_matches('.').parse().ok()
        });
        // Nothing may wait for a full pipe.
        std::thread::spawn(move || lines.for_each(drop));
        let mut browser = Self {
            driver,
            port: port.unwrap(),
            session: String::new(),
            profile: profile.to_owned(),
        };
        let profile = format!("--user-data-dir={}", profile.display());
        let mut all = vec!["--headless=new", "--no-sandbox", "--disable-gpu", &profile];
        all.extend(["--disable-dev-shm-usage", "--window-size=1280,1400", "--hide-scrollbars"]);
        all.extend(arguments);
        let wanted = json!({ "capabilities": { "alwaysMatch": {
            "browserName": "chrome",
            "goog:chromeOptions": { "args": all },
            "goog:loggingPrefs": { "browser": "ALL" },
        } } });
        let made = browser.request("POST", "", &wanted);
        browser.session = made["sessionId"].as_str().unwrap().to_owned();
        Some(browser)
    }

    pub(crate) fn open(&self, url: &str) {
        self.request("POST", "/url", &json!({ "url": url }));
    }

    /// Runs a script and returns its value.
    pub(crate) fn script(&self, script: &str) -> Value {
        self.request("POST", "/execute/sync", &json!({ "script": script, "args": [] }))
    }

    /// Waits until an expression is true.
    pub(crate) fn until(&self, what: &str, expression: &str) {
        let started = Instant::now();
        let script = format!("return Boolean({expression})");
        while self.script(&script) != json!(true) {
            assert!(
                started.elapsed() < WAIT,
                "{what} did not happen: {}\n{}",
                self.text("body"),
                self.console().join("\n")
            );
            std::thread::sleep(POLL);
        }
    }

    /// Waits until an element has a text.
    pub(crate) fn until_text(&self, selector: &str, text: &str) {
        let expression = format!(
            "[...document.querySelectorAll({})].some((it) => it.textContent.includes({}))",
            json!(selector),
            json!(text)
        );
        self.until(&format!("{text:?} in {selector}"), &expression);
    }

    /// Returns the text of the first element.
    pub(crate) fn text(&self, selector: &str) -> String {
        let script = format!("return document.querySelector({})?.innerText", json!(selector));
        self.script(&script).as_str().unwrap_or_default().to_owned()
    }

    /// Clicks the first element.
    pub(crate) fn click(&self, selector: &str) {
        let wanted = json!({ "using": "css selector", "value": selector });
        let found = self.request("POST", "/element", &wanted);
        let id = found.as_object().and_then(|found| found.values().next()).unwrap();
        self.request("POST", &format!("/element/{}/click", id.as_str().unwrap()), &json!({}));
    }

    /// Presses keys one after another on the focused element.
    pub(crate) fn press(&self, keys: &[&str]) {
        let press = |key: &&str| {
            [json!({ "type": "keyDown", "value": key }), json!({ "type": "keyUp", "value": key })]
        };
        let actions: Vec<_> = keys.iter().flat_map(press).collect();
        let actions = json!({ "actions": [{ "type": "key", "id": "keys", "actions": actions }] });
        self.request("POST", "/actions", &actions);
    }

    /// Presses the mouse button over the first element, until [`Self::let_go`].
    pub(crate) fn hold(&self, selector: &str) {
        let query = format!("document.querySelector({})", json!(selector));
        self.script(&format!("{query}.scrollIntoView({{ block: 'center' }})"));
        let wanted = json!({ "using": "css selector", "value": selector });
        let origin = self.request("POST", "/element", &wanted);
        let over = json!({ "type": "pointerMove", "origin": origin, "x": 0, "y": 0 });
        self.pointer(&[over, json!({ "type": "pointerDown", "button": 0 })]);
    }

    pub(crate) fn let_go(&self) {
        self.pointer(&[json!({ "type": "pointerUp", "button": 0 })]);
    }

    fn pointer(&self, actions: &[Value]) {
        let mouse = json!({ "pointerType": "mouse" });
        let mouse =
            json!({ "type": "pointer", "id": "mouse", "parameters": mouse, "actions": actions });
        self.request("POST", "/actions", &json!({ "actions": [mouse] }));
    }

    pub(crate) fn resize(&self, width: u32, height: u32) {
        self.request("POST", "/window/rect", &json!({ "width": width, "height": height }));
    }

    /// Shows the page in this colour scheme.
    pub(crate) fn scheme(&self, scheme: &str) {
        let parameters =
            json!({ "features": [{ "name": "prefers-color-scheme", "value": scheme }] });
        let command = json!({ "cmd": "Emulation.setEmulatedMedia", "params": parameters });
        self.request("POST", "/goog/cdp/execute", &command);
    }

    pub(crate) fn new_tab(&self) -> String {
        let made = self.request("POST", "/window/new", &json!({ "type": "tab" }));
        let tab = made["handle"].as_str().unwrap().to_owned();
        self.switch(&tab);
        tab
    }

    pub(crate) fn switch(&self, tab: &str) {
        self.request("POST", "/window", &json!({ "handle": tab }));
    }

    /// Returns the picture of the window as PNG.
    pub(crate) fn picture(&self) -> Vec<u8> {
        let picture = self.request("GET", "/screenshot", &Value::Null);
        base64(picture.as_str().unwrap())
    }

    /// Returns the errors and warnings of the console since the last call.
    pub(crate) fn console(&self) -> Vec<String> {
        let entries = self.request("POST", "/se/log", &json!({ "type": "browser" }));
        let entries = entries.as_array().cloned().unwrap_or_default();
        let is_bad = |entry: &&Value| {
            entry["level"].as_str().is_some_and(|level| ["SEVERE", "WARNING"].contains(&level))
        };
        entries.iter().filter(is_bad).map(|it| it["message"].to_string()).collect()
    }

    fn request(&self, method: &str, path: &str, body: &Value) -> Value {
        let session = match self.session.as_str() {
            "" => "/session".to_owned(),
            id => format!("/session/{id}"),
        };
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        stream.set_read_timeout(Some(WAIT)).unwrap();
        let head = format!(
            "{method} {session}{path} HTTP/1.1\r\nHost: 127.0.0.1\r\n\
             Content-Type: application/json\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        stream.write_all((head + &body).as_bytes()).unwrap();
        // The driver keeps the connection open.
        let mut reader = BufReader::new(stream);
        let (mut head, mut len) = (String::new(), 0);
        while !head.ends_with("\r\n\r\n") {
            let before = head.len();
            reader.read_line(&mut head).unwrap();
            assert!(head.len() > before, "the driver has ended");
            let line = head[before..].to_ascii_lowercase();
            if let Some(number) = line.strip_prefix("content-length:") {
                len = number.trim().parse().unwrap();
            }
        }
        let mut body = vec![0; len];
        reader.read_exact(&mut body).unwrap();
        let mut reply: Value = serde_json::from_slice(&body).unwrap();
        assert!(head.contains(" 200 "), "{method} {path}: {reply}");
        reply["value"].take()
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // Also after a failed test: the browser does not end with its driver. The answer is not
        // needed, and a failure here must not hide that of the test.
        if let Ok(mut stream) = TcpStream::connect(("127.0.0.1", self.port)) {
            let head = format!("DELETE /session/{} HTTP/1.1\r\nHost: 127.0.0.1", self.session);
            let _ = stream.set_read_timeout(Some(WAIT));
            let _ = stream.write_all((head + "\r\nContent-Length: 0\r\n\r\n").as_bytes());
            let _ = stream.read(&mut [0; 512]);
        }
        drop(self.driver.kill());
        drop(self.driver.wait());
        drop(std::fs::remove_dir_all(&self.profile));
    }
}

fn base64(text: &str) -> Vec<u8> {
    let value = |letter: u8| match letter {
        b'A'..=b'Z' => Some(letter - b'A'),
        b'a'..=b'z' => Some(letter - b'a' + 26),
        b'0'..=b'9' => Some(letter - b'0' + 52),
        b'+' => Some(62),
        b'/' => Some(63),
        _ => None,
    };
    let values: Vec<u32> = text.bytes().filter_map(value).map(u32::from).collect();
    let group = |group: &[u32]| {
        let number = group.iter().fold(0, |sum, value| sum << 6 | value) << (6 * (4 - group.len()));
        number.to_be_bytes()[1..group.len()].to_vec()
    };
    values.chunks(4).flat_map(group).collect()
}
