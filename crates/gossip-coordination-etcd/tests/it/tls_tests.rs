//! TLS with a real server, and every way in which the two sides can disagree.

use std::time::{Duration, Instant};

use gossip_coordination::store::{Key, Read, Store as _};
use gossip_coordination_etcd::{
    EtcdCause, EtcdConfig, EtcdError, EtcdKv, Fate, GrpcClient, GrpcConfig, TlsIdentity, TlsOptions,
};
use gossip_testkit::test_support::{EtcdServer, ServerOptions, ServerTls, TestDirectory};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};

use crate::facts_tests::{put, steps};

/// An authority of our own.
struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    /// A certificate and its key for a name.
    fn sign(&self, name: &str) -> (String, String) {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        (params.signed_by(&key, &self.0).unwrap().pem(), key.serialize_pem())
    }

    fn pem(&self) -> String {
        self.0.pem()
    }

    fn options(&self) -> TlsOptions {
        TlsOptions { ca_pem: self.pem().into_bytes(), ..TlsOptions::default() }
    }
}

fn server(authority: &Authority, name: &str, asks_clients: bool) -> EtcdServer {
    let (cert_pem, key_pem) = authority.sign(name);
    let client_ca_pem = asks_clients.then(|| authority.pem());
    let tls = Some(ServerTls { cert_pem, key_pem, client_ca_pem });
    EtcdServer::with_options(&ServerOptions { flags: Vec::new(), tls })
}

async fn write(endpoint: String, tls: Option<TlsOptions>) -> Result<(), EtcdError> {
    let config = GrpcConfig { tls, ..GrpcConfig::new([endpoint]) };
    let client = GrpcClient::new(&config).unwrap();
    client.txn(steps(vec![put("k", "v")])).await.map(drop)
}

fn assert_tls_fails(result: Result<(), EtcdError>) {
    let error = result.unwrap_err();
    assert_eq!(error.fate, Fate::NotSent, "{error}");
    assert!(matches!(error.cause, EtcdCause::Tls { .. }), "{error:?}");
}

#[tokio::test]
async fn a_server_is_trusted_by_its_authority_and_its_name() {
    let authority = Authority::new();
    let server = server(&authority, "127.0.0.1", false);
    write(server.endpoint(), Some(authority.options())).await.unwrap();
    assert_tls_fails(write(server.endpoint(), Some(Authority::new().options())).await);
    let other_name = TlsOptions { server_name: Some("etcd.test".into()), ..authority.options() };
    assert_tls_fails(write(server.endpoint(), Some(other_name)).await);
    // The client forgot the `s`.
    assert_tls_fails(write(server.endpoint().replace("https", "http"), None).await);
}

#[tokio::test]
async fn expired_certificate_is_refused() {
    let authority = Authority::new();
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
    params.not_before = rcgen::date_time_ymd(2019, 1, 1);
    params.not_after = rcgen::date_time_ymd(2020, 1, 1);
    let cert_pem = params.signed_by(&key, &authority.0).unwrap().pem();
    let tls = ServerTls { cert_pem, key_pem: key.serialize_pem(), client_ca_pem: None };
    let server = EtcdServer::with_options(&ServerOptions { flags: Vec::new(), tls: Some(tls) });
    assert_tls_fails(write(server.endpoint(), Some(authority.options())).await);
}

#[tokio::test]
async fn self_signed_certificate_is_refused() {
    let signed = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()]).unwrap();
    let (cert_pem, key_pem) = (signed.cert.pem(), signed.signing_key.serialize_pem());
    let tls = ServerTls { cert_pem, key_pem, client_ca_pem: None };
    let server = EtcdServer::with_options(&ServerOptions { flags: Vec::new(), tls: Some(tls) });
    assert_tls_fails(write(server.endpoint(), Some(Authority::new().options())).await);
}

/// Another authority signs the new certificate, so the client needs the file as it is now.
#[test]
fn rotated_certificate_is_picked_up_without_a_restart() {
    let directory = TestDirectory::new("etcd-tls-rotated");
    let ca_file = directory.path().join("ca.pem");
    let authority = Authority::new();
    std::fs::write(&ca_file, authority.pem()).unwrap();
    let mut server = server(&authority, "127.0.0.1", false);
    let port = server.client_port();
    let url = format!("etcd://127.0.0.1:{port}/rotated?ca={}", ca_file.display());
    let coordinator = EtcdConfig::from_url(&url).unwrap().connect_blocking().unwrap();
    let mut store = coordinator.store().clone();
    let next = Authority::new();
    let (cert_pem, key_pem) = next.sign("127.0.0.1");
    server.replace_tls(ServerTls { cert_pem, key_pem, client_ca_pem: None });
    std::fs::write(&ca_file, next.pem()).unwrap();
    // Ends the connections; the process of the client is not restarted.
    server.restart();
    let mut read = || store.read(vec![Read::Get(Key::SchemaVersion)]);
    // The first read may still find the old connection.
    let deadline = Instant::now() + Duration::from_secs(60);
    while let Err(error) = read() {
        assert!(Instant::now() < deadline, "{error}");
    }
}

#[tokio::test]
async fn a_name_can_be_given() {
    let authority = Authority::new();
    let server = server(&authority, "etcd.test", false);
    let named = TlsOptions { server_name: Some("etcd.test".into()), ..authority.options() };
    write(server.endpoint(), Some(named)).await.unwrap();
    assert_tls_fails(write(server.endpoint(), Some(authority.options())).await);
}

#[tokio::test]
async fn a_server_that_asks_for_a_certificate_gets_one() {
    let authority = Authority::new();
    let server = server(&authority, "127.0.0.1", true);
    let (cert_pem, key_pem) = authority.sign("worker");
    let identity = TlsIdentity { cert_pem: cert_pem.into(), key_pem: key_pem.into() };
    let options = TlsOptions { identity: Some(identity), ..authority.options() };
    assert!(!format!("{options:?}").contains("BEGIN"));
    write(server.endpoint(), Some(options)).await.unwrap();
    assert_tls_fails(write(server.endpoint(), Some(authority.options())).await);
}

#[tokio::test]
async fn a_server_without_tls_is_named() {
    let server = EtcdServer::single();
    let options = Authority::new().options();
    assert_tls_fails(write(server.endpoint().replace("http", "https"), Some(options)).await);
}

#[test]
fn certificates_must_be_pem() {
    let identity = TlsIdentity { cert_pem: b"x".to_vec(), key_pem: b"x".to_vec() };
    let tls = Some(TlsOptions { identity: Some(identity), ..TlsOptions::default() });
    let config = GrpcConfig { tls, ..GrpcConfig::new(["https://127.0.0.1:1"]) };
    let error = GrpcClient::new(&config).unwrap_err();
    assert!(matches!(error.cause, EtcdCause::BadConfig(_)), "{error}");
}
