//! A pod with an HTTPS server that runs a script. The server implements a webhook or an aggregated
//! API.

use anyhow::{Context as _, Result};
use k8s_openapi::ByteString;
use kubernetes_lab::namespace::Namespace;
use rcgen::CertifiedKey;
use serde_json::{Value, json};

/// The name of the pod, of its Service and of its Secret.
const NAME: &str = "server";

/// Starts a server that runs `script` for each request. Returns the server's self-signed
/// certificate as a `caBundle`.
///
/// `clients` is the certificate of a certificate authority. If `clients` is set, the server refuses
/// clients without a certificate of this authority.
pub(super) async fn start(
    namespace: &Namespace,
    script: &str,
    clients: Option<&str>,
) -> Result<Value> {
    let name = format!("{NAME}.{}.svc", namespace.name());
    let CertifiedKey { cert, signing_key } =
        rcgen::generate_simple_self_signed([name]).context("failed to sign a certificate")?;
    let verify = match clients {
        Some(_) => "verify=1,cafile=/files/clients.crt",
        None => "verify=0",
    };
    let objects = [
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": NAME}, "stringData": {
            "server.crt": cert.pem(),
            "server.key": signing_key.serialize_pem(),
            "clients.crt": clients.unwrap_or_default(),
            "request.sh": REQUEST,
            "script.sh": script,
        }}),
        json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": NAME}, "spec": {
            "selector": {"app": NAME},
            "ports": [{"port": 443, "targetPort": 8443}],
        }}),
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": NAME, "labels": {"app": NAME}}, "spec": {
            "terminationGracePeriodSeconds": 0,
            "volumes": [{"name": "files", "secret": {"secretName": NAME}}],
            "containers": [{
                "name": NAME,
                "image": "localhost/tools:latest",
                "imagePullPolicy": "IfNotPresent",
                "command": [
                    "socat",
                    format!("OPENSSL-LISTEN:8443,reuseaddr,fork,cert=/files/server.crt,key=/files/server.key,{verify}"),
                    "EXEC:bash /files/request.sh",
                ],
                "volumeMounts": [{"name": "files", "mountPath": "/files"}],
                "readinessProbe": {"tcpSocket": {"port": 8443}, "periodSeconds": 1},
            }],
        }}),
    ];
    // Every JSON document is also a YAML document.
    let documents = objects.map(|object| object.to_string()).join("\n---\n");
    namespace.apply(&documents).await?;
    namespace.wait(&format!("pod/{NAME}"), "Ready").await?;

    Ok(json!(ByteString(cert.pem().into())))
}

/// A script that reads a request into the variables `path`, `body` and `headers` (one header per
/// line, in lower case). It then runs the test's script, which may set `status` and `answer` for
/// the response.
const REQUEST: &str = r#"
read -r method path version
headers=
length=0
while read -r line; do
  line=${line%$'\r'}
  [ "$line" ] || break
  name=${line%%:*}
  headers+="${name,,}:${line#*:}"$'\n'
  [ "${name,,}" = content-length ] && length=${line#*: }
done
body=$(head -c "$length")
status='200 OK'
answer='{}'
. /files/script.sh
printf 'HTTP/1.1 %s\r\nContent-Type: application/json\r\n' "$status"
printf 'Content-Length: %s\r\nConnection: close\r\n\r\n%s' "${#answer}" "$answer"
"#;
