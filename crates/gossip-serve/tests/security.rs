//! Each line of the security section of docs/serve.md.

mod support;

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use gossip_serve::{ServeError, Server};

use self::support::{OPERATOR, READER, Reply, Served, start};

/// Every route, so that a check that must hold everywhere is tried everywhere.
const ROUTES: [&str; 18] = [
    "/",
    "/runs",
    "/runs/0000000000000001",
    "/workers",
    "/store",
    "/assets/app.js",
    "/metrics",
    "/nothing",
    "/api/v1/session",
    "/api/v1/runs",
    "/api/v1/runs/0000000000000001",
    "/api/v1/runs/0000000000000001/history",
    "/api/v1/runs/0000000000000001/failures",
    "/api/v1/runs/0000000000000001/events",
    "/api/v1/workers",
    "/api/v1/store",
    "/api/v1/stream",
    "/api/v1/openapi.json",
];

const ACTION: &str = r#"{"action":"pause","run":"0000000000000001"}"#;

fn served() -> Served {
    start("memory:", |_| {})
}

fn bearer(token: &str) -> String {
    format!("Bearer {token}")
}

#[test]
fn foreign_host_is_refused_first_on_every_route() {
    let served = served();
    let port = served.address().port();
    for path in ROUTES {
        for host in ["evil.example", &format!("evil.example:{port}"), "127.0.0.1", "localhost:1"] {
            // Neither a token nor a wrong method is looked at before.
            for method in ["GET", "POST", "DELETE", "OPTIONS"] {
                let reply = served.send(
                    &format!("{method} {path}"),
                    &[("Host", host), ("Authorization", &bearer(OPERATOR))],
                    "",
                );
                assert_eq!((reply.status, reply.code().as_str()), (421, "wrong_host"), "{path}");
            }
        }
    }
    for host in [format!("localhost:{port}"), format!("[::1]:{port}"), "gossip.example".to_owned()]
    {
        assert_eq!(served.send("GET /", &[("Host", &host)], "").status, 200, "{host}");
    }
}

#[test]
fn request_without_host_or_with_two_or_a_foreign_target_is_refused() {
    let served = served();
    let host = served.host();
    for head in [
        "GET / HTTP/1.1\r\n".to_owned(),
        "GET / HTTP/1.0\r\n".to_owned(),
        format!("GET / HTTP/1.1\r\nHost: {host}\r\nHost: evil.example\r\n"),
        format!("GET http://evil.example/ HTTP/1.1\r\nHost: {host}\r\n"),
    ] {
        let reply = served.raw(format!("{head}Connection: close\r\n\r\n").as_bytes());
        assert!([400, 421].contains(&reply.status), "{head}: {reply:?}");
    }
}

#[test]
fn printed_url_names_the_server() {
    for listen in ["127.0.0.1:0", "127.0.0.2:0", "0.0.0.0:0", "[::1]:0", "[::]:0"] {
        let listen: SocketAddr = listen.parse().unwrap();
        // A machine may have no IPv6.
        if std::net::TcpListener::bind(listen).is_err() {
            continue;
        }
        let served = start("memory:", |options| options.listen = listen);
        let url = served.server.url();
        let host = url.strip_prefix("http://").unwrap().strip_suffix('/').unwrap();
        let mut stream = TcpStream::connect(host).unwrap();
        let head = format!("GET / HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
        stream.write_all(head.as_bytes()).unwrap();
        assert_eq!(support::read(&mut stream).status, 200, "{url}");
    }
}

#[test]
fn data_needs_a_token_on_loopback_too() {
    let served = served();
    for path in ROUTES.iter().filter(|path| path.starts_with("/api/") || **path == "/metrics") {
        for headers in [
            &[][..],
            &[("Authorization", "Bearer wrong-token-of-someone")],
            &[("Cookie", "gossip_1=x")],
        ] {
            let reply = served.send(&format!("GET {path}"), headers, "");
            assert_eq!((reply.status, reply.code().as_str()), (401, "unauthorized"), "{path}");
        }
    }
    // Also not in the query, where it would be logged.
    let reply = served.send(&format!("GET /api/v1/runs?token={OPERATOR}"), &[], "");
    assert_eq!(reply.status, 401);
}

#[test]
fn token_is_traded_for_a_cookie_that_scripts_and_other_sites_do_not_get() {
    let served = served();
    let json = ("Content-Type", "application/json");
    let body = format!("{{\"token\":\"{OPERATOR}\"}}");
    let reply = served.send("POST /api/v1/session", &[json], &body);
    assert_eq!(reply.status, 200, "{reply:?}");
    let cookie = reply.header("set-cookie").unwrap().to_owned();
    let name = format!("gossip_{}=", served.address().port());
    assert!(cookie.starts_with(&name), "{cookie}");
    assert!(cookie.contains("; HttpOnly") && cookie.contains("; SameSite=Strict"), "{cookie}");
    assert!(!cookie.contains(OPERATOR));
    let pair = cookie.split(';').next().unwrap();
    assert_eq!(served.send("GET /api/v1/runs", &[("Cookie", pair)], "").status, 200);
    let wrong = served.send("POST /api/v1/session", &[json], r#"{"token":"wrong-token-here"}"#);
    assert_eq!((wrong.status, wrong.header("set-cookie")), (401, None));
}

/// Sends guesses until one is refused without a look.
fn guess(send: impl Fn(usize) -> Reply) {
    let refused = (0..60).map(send).find(|reply| reply.status != 401).expect("guesses are counted");
    assert_eq!((refused.status, refused.code().as_str()), (429, "too_many_requests"));
}

#[test]
fn guessed_tokens_are_limited_however_they_are_sent() {
    let json = ("Content-Type", "application/json");
    let sign_in = |served: &Served, token: &str| {
        served.send("POST /api/v1/session", &[json], &format!("{{\"token\":\"{token}\"}}"))
    };
    let by_header = served();
    guess(|number| {
        let token = bearer(&format!("wrong-token-{number}"));
        by_header.send("GET /api/v1/runs", &[("Authorization", &token)], "")
    });
    // The right one would be the answer to a guess.
    assert_eq!(by_header.get("/api/v1/runs").status, 429);
    assert_eq!(sign_in(&by_header, OPERATOR).status, 429);
    assert_eq!(by_header.send("GET /", &[], "").status, 200);
    let by_cookie = served();
    guess(|number| {
        let cookie = format!("gossip_{}=wrong{number}", by_cookie.address().port());
        by_cookie.send("GET /api/v1/runs", &[("Cookie", &cookie)], "")
    });
    let by_body = served();
    guess(|number| sign_in(&by_body, &format!("wrong-token-{number}")));
}

#[test]
fn right_tokens_and_a_stale_one_are_not_counted_as_guesses() {
    let served = served();
    let stale = bearer("token-of-the-start-before");
    let json = ("Content-Type", "application/json");
    let body = format!("{{\"token\":\"{OPERATOR}\"}}");
    for _ in 0..40 {
        let headers = [("Authorization", stale.as_str())];
        assert_eq!(served.send("GET /api/v1/runs", &headers, "").status, 401);
        assert_eq!(served.send("POST /api/v1/session", &[json], &body).status, 200);
        assert_eq!(served.get("/api/v1/runs").status, 200);
    }
}

#[test]
fn token_of_another_server_is_refused() {
    let (one, other) = (
        served(),
        start("memory:", |options| {
            options.tenant = gossip::tenant_id("other").unwrap();
            options.tenant_name = "other".to_owned();
            options.tokens =
                vec![(gossip_serve::Role::Operate, "operator-of-the-other".to_owned())];
        }),
    );
    assert_eq!(other.get("/api/v1/runs").status, 401);
    let token = bearer("operator-of-the-other");
    assert_eq!(one.send("GET /api/v1/runs", &[("Authorization", &token)], "").status, 401);
    assert_eq!(other.send("GET /api/v1/runs", &[("Authorization", &token)], "").status, 200);
    // Neither does the cookie of the one help at the other: its name has the port.
    let body = format!("{{\"token\":\"{OPERATOR}\"}}");
    let json = ("Content-Type", "application/json");
    let reply = one.send("POST /api/v1/session", &[json], &body);
    let cookie = reply.header("set-cookie").unwrap().split(';').next().unwrap().to_owned();
    assert_eq!(other.send("GET /api/v1/runs", &[("Cookie", &cookie)], "").status, 401);
}

#[test]
fn change_needs_json() {
    let served = served();
    for kind in ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""] {
        let headers = [("Authorization", &*bearer(OPERATOR)), ("Content-Type", kind)];
        let reply = served.send("POST /api/v1/actions", &headers, ACTION);
        assert_eq!((reply.status, reply.code().as_str()), (415, "unsupported_media_type"));
    }
}

#[test]
fn change_from_another_site_is_refused() {
    let served = served();
    let own = format!("http://{}", served.host());
    for headers in [
        &[("Sec-Fetch-Site", "cross-site")][..],
        &[("Sec-Fetch-Site", "same-site")],
        &[("Sec-Fetch-Site", "none")],
        &[("Origin", "http://evil.example")],
        &[("Origin", "null")],
        &[("Sec-Fetch-Site", "same-origin"), ("Origin", "http://localhost:1")],
    ] {
        let reply = served.post("/api/v1/actions", headers, ACTION);
        assert_eq!((reply.status, reply.code().as_str()), (403, "cross_site"), "{headers:?}");
    }
    let same = [("Sec-Fetch-Site", "same-origin"), ("Origin", own.as_str())];
    // It passes, and there is no such run.
    assert_eq!(served.post("/api/v1/actions", &same, ACTION).code(), "run_not_found");
    assert_eq!(served.post("/api/v1/actions", &[], ACTION).code(), "run_not_found");
}

#[test]
fn no_get_changes_anything_and_no_other_method_exists() {
    let served = served();
    for path in ROUTES {
        for method in ["PUT", "DELETE", "PATCH"] {
            let headers =
                [("Authorization", &*bearer(OPERATOR)), ("Content-Type", "application/json")];
            let reply = served.send(&format!("{method} {path}"), &headers, "{}");
            assert!([404, 405].contains(&reply.status), "{method} {path}: {reply:?}");
        }
    }
    assert_eq!(served.get("/api/v1/actions").status, 405);
}

#[test]
fn read_only_server_and_reading_token_change_nothing() {
    let read_only = start("memory:", |options| options.read_only = true);
    assert_eq!(read_only.post("/api/v1/actions", &[], ACTION).code(), "read_only");
    assert_eq!(read_only.get("/api/v1/session").json()["may_change"], false);
    let served = served();
    let headers = [("Authorization", &*bearer(READER)), ("Content-Type", "application/json")];
    let reply = served.send("POST /api/v1/actions", &headers, ACTION);
    assert_eq!((reply.status, reply.code().as_str()), (403, "forbidden"));
}

#[test]
fn every_answer_has_the_headers_and_none_allows_other_origins() {
    let served = served();
    for path in ROUTES.iter().filter(|path| **path != "/api/v1/stream") {
        let origin = ("Origin", "http://evil.example");
        let token = bearer(OPERATOR);
        let headers = [origin, ("Authorization", token.as_str())];
        let reply = served.send(&format!("GET {path}"), &headers, "");
        let policy = reply.header("content-security-policy").unwrap();
        assert!(policy.starts_with("default-src 'self';"), "{policy}");
        assert!(policy.contains("frame-ancestors 'none'") && !policy.contains("unsafe"));
        assert_eq!(reply.header("x-content-type-options"), Some("nosniff"), "{path}");
        assert_eq!(reply.header("referrer-policy"), Some("no-referrer"));
        assert!(!reply.head.to_ascii_lowercase().contains("access-control"), "{path}");
    }
    let preflight = served.send(
        "OPTIONS /api/v1/actions",
        &[("Origin", "http://evil.example"), ("Access-Control-Request-Method", "POST")],
        "",
    );
    assert!(preflight.status >= 400 && !preflight.head.contains("ccess-control-allow"));
}

#[test]
fn address_that_is_not_loopback_needs_a_token_of_the_operator() {
    let served = |tokens: bool, text: &str| {
        let mut options = support::options();
        options.listen = "0.0.0.0:0".parse().unwrap();
        options.tokens.retain(|_| tokens);
        options.tokens.iter_mut().for_each(|(_, token)| token.push_str(text));
        let access = support::TestAccess::new("memory:");
        Server::start(std::sync::Arc::new(access), options)
    };
    assert!(matches!(served(false, ""), Err(ServeError::TokenNeeded)));
    assert!(served(true, "").is_ok());
    let mut short = support::options();
    short.tokens = vec![(gossip_serve::Role::Read, "short".to_owned())];
    let access = support::TestAccess::new("memory:");
    let short = Server::start(std::sync::Arc::new(access), short);
    assert!(matches!(short, Err(ServeError::TokenTooShort)));
}

#[test]
fn fresh_token_is_in_the_fragment_and_differs_with_each_start() {
    let fresh = || start("memory:", |options| options.tokens.clear()).server.url();
    let (one, other) = (fresh(), fresh());
    let token = one.split_once("/#token=").unwrap().1;
    assert!(token.len() == 64 && !other.ends_with(token), "{one}");
}

#[test]
fn large_body_is_refused() {
    let served = served();
    let body = format!("{{\"action\":\"pause\",\"run\":\"{}\"}}", "x".repeat(20_000));
    let reply = served.post("/api/v1/actions", &[], &body);
    assert_eq!((reply.status, reply.code().as_str()), (413, "body_too_large"));
    // Also if its length is not announced.
    let mut stream = served.connect();
    let head = format!(
        "POST /api/v1/actions HTTP/1.1\r\nHost: {}\r\nConnection: close\r\nAuthorization: Bearer \
         {OPERATOR}\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n",
        served.host()
    );
    stream.write_all(head.as_bytes()).unwrap();
    let chunk = format!("4000\r\n{}\r\n", "x".repeat(0x4000));
    for _ in 0..3 {
        // The server may have answered and closed.
        let _ = stream.write_all(chunk.as_bytes());
    }
    let _ = stream.write_all(b"0\r\n\r\n");
    let reply = support::read(&mut stream);
    assert_eq!(reply.status, 413, "{reply:?}");
}

#[test]
fn large_head_is_refused() {
    let served = served();
    let long = "x".repeat(100_000);
    let reply = served.send("GET /", &[("X-Long", &long)], "");
    assert!([0, 431].contains(&reply.status), "{}", reply.status);
    let reply = served.send(&format!("GET /{long}"), &[], "");
    assert!([0, 414, 431].contains(&reply.status), "{}", reply.status);
    assert_eq!(served.get("/api/v1/runs").status, 200);
}

#[test]
fn client_that_sends_slowly_is_disconnected() {
    let served = served();
    let mut stream = served.connect();
    stream.write_all(b"GET / HTTP/1.1\r\nHost: ").unwrap();
    let started = Instant::now();
    let mut rest = Vec::new();
    // Ends when the server closes; the limit of the read is longer than the limit of the server.
    stream.read_to_end(&mut rest).unwrap();
    assert!(started.elapsed() < Duration::from_secs(30), "{:?}", started.elapsed());
    assert_eq!(served.get("/api/v1/runs").status, 200);
}

#[test]
fn nonsense_is_answered_without_5xx() {
    let served = served();
    let host = served.host();
    let token = bearer(OPERATOR);
    for path in [
        "/api/v1/runs?limit=0",
        "/api/v1/runs?limit=99999999999999999999",
        "/api/v1/runs?limit=x",
        "/api/v1/runs?cursor=x",
        "/api/v1/runs?unknown=1",
        "/api/v1/runs/x",
        "/api/v1/runs/%00",
        "/api/v1/runs/ffffffffffffffffffff",
        "/api/v1/runs/0000000000000001/failures?cursor=zz",
        "/api/v1/runs/0000000000000001/failures?limit=-1",
        "/api/v1/stream?run=x",
        "/assets/../../etc/passwd",
        "/assets/%2e%2e%2fCargo.toml",
        "//",
        "/%",
    ] {
        let reply = served.get(path);
        assert!((400..500).contains(&reply.status), "{path}: {reply:?}");
    }
    for body in
        ["", "{", "[]", "null", "{\"action\":\"explode\"}", "\u{feff}{}", ACTION.get(..9).unwrap()]
    {
        let reply = served.post("/api/v1/actions", &[], body);
        assert_eq!((reply.status, reply.code().as_str()), (400, "invalid_json"), "{body}");
    }
    for raw in [
        "\r\n\r\n\r\n".to_owned(),
        "\0\0\0\0".to_owned(),
        "GET".to_owned() + &" ".repeat(1_000) + "\r\n\r\n",
        format!(
            "GET / HTTP/1.1\r\nHost: {host}\r\nAuthorization: {token}\r\nContent-Length: x\r\n\r\n"
        ),
        format!("POST / HTTP/1.1\r\nHost: {host}\r\nTransfer-Encoding: gzip\r\n\r\n"),
    ] {
        let mut stream = served.connect();
        stream.write_all(raw.as_bytes()).unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        let mut rest = Vec::new();
        let _ = stream.read_to_end(&mut rest);
        let reply: Reply = support::parse(&String::from_utf8_lossy(&rest));
        assert!(reply.status < 500, "{raw:?}: {reply:?}");
    }
    assert_eq!(served.get("/api/v1/runs").status, 200);
}

#[test]
fn too_many_requests_are_refused() {
    let served = served();
    let mut stream = served.connect();
    let request = format!("GET /assets/icon.svg HTTP/1.1\r\nHost: {}\r\n\r\n", served.host());
    // Pipelined on one connection: thousands of separate ones would take longer than the limit
    // allows for.
    let mut writer = stream.try_clone().unwrap();
    let written = std::thread::spawn(move || {
        let many = request.repeat(100);
        // Ends early when the reader has seen enough.
        (0..100).all(|_| writer.write_all(many.as_bytes()).is_ok())
    });
    let (mut text, mut chunk) = (String::new(), [0_u8; 65_536]);
    while !text.contains(" 429 ") {
        let len = stream.read(&mut chunk).unwrap();
        assert!(len > 0, "every request was admitted");
        text = text.split_off(text.len().saturating_sub(100).min(text.len()));
        text += &String::from_utf8_lossy(&chunk[..len]);
    }
    drop(stream.shutdown(std::net::Shutdown::Both));
    drop(written.join());
}
