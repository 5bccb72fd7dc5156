//! A shop whose services are processes that listen on the loopback interface.

use serde_json::Value;
use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, ChildStdout, Command, Stdio};

/// The form of a checkout with a valid card.
pub(crate) const CARD: &str = "email=someone%40example.com&address=Rome&card=4111-1111-1111-1111";

/// The services. Each one is started after those that it calls.
const SERVICES: [&str; 10] = [
    "adservice",
    "cartservice",
    "currencyservice",
    "emailservice",
    "paymentservice",
    "productcatalogservice",
    "shippingservice",
    "recommendationservice",
    "checkoutservice",
    "frontend",
];

const REDIS: &str = "redis-cart";

/// All services, which end with this value.
pub(crate) struct Shop {
    processes: BTreeMap<&'static str, Process>,
    /// Variables with the addresses of all services.
    addresses: BTreeMap<String, String>,
}

struct Process {
    child: Child,
    output: BufReader<ChildStdout>,
    address: String,
}

impl Shop {
    /// Starts Redis and all services.
    pub(crate) fn start() -> Self {
        let mut shop = Self {
            processes: BTreeMap::new(),
            addresses: BTreeMap::new(),
        };
        shop.insert(REDIS, start_redis(None));
        for service in SERVICES {
            let mut command = Command::new(env!("CARGO_BIN_EXE_shop"));
            command
                .args(["--listen=127.0.0.1:0", service])
                .envs(&shop.addresses)
                .env("POD_NAME", format!("{service}-0"))
                .env("NODE_NAME", "node-1");
            let process = Process::start(&mut command, "listening on ");
            shop.insert(service, process.expect("it starts"));
        }

        shop
    }

    fn insert(&mut self, name: &'static str, process: Process) {
        let variable = name.replace('-', "_").to_uppercase() + "_ADDR";
        self.addresses.insert(variable, process.address.clone());
        self.processes.insert(name, process);
    }

    /// Kills a service.
    pub(crate) fn kill(&mut self, service: &str) {
        drop(self.processes.remove(service).expect("it is running"));
    }

    /// Replaces Redis by a new process with the same address.
    pub(crate) fn restart_redis(&mut self) {
        let address = self.addresses["REDIS_CART_ADDR"].clone();
        self.kill(REDIS);
        self.insert(REDIS, start_redis(Some(address)));
    }

    /// Returns the next line that a service prints.
    pub(crate) fn line_of(&mut self, service: &str) -> String {
        let process = self.processes.get_mut(service);

        process.and_then(Process::line).expect("it is running")
    }

    /// Returns a session of a browser.
    pub(crate) fn session(&self) -> Session {
        Session {
            address: self.addresses["FRONTEND_ADDR"].clone(),
            cookies: BTreeMap::new(),
        }
    }

    /// Runs the load generator. Returns its exit code and its report.
    pub(crate) fn load(&self, options: &[&str]) -> (Option<i32>, String) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_shop"));
        let command = command.arg("loadgenerator").args(options);
        let output = command.envs(&self.addresses).output().expect("it starts");

        (
            output.status.code(),
            String::from_utf8(output.stdout).expect("it prints text"),
        )
    }
}

/// Starts Redis on a free port, or at the address of a former process.
fn start_redis(former: Option<String>) -> Process {
    let start = |_| {
        let address = former.clone().unwrap_or_else(|| {
            let free = TcpListener::bind("127.0.0.1:0").and_then(|it| it.local_addr());
            free.expect("a port is free").to_string()
        });
        let port = address.rsplit(':').next()?;
        // Debian's package of tools contains the server, which its own name selects.
        let mut command = Command::new("redis-check-rdb");
        command
            .arg0("redis-server")
            .args(["--bind", "127.0.0.1", "--port", port, "--save", ""])
            .args(["--replica-announce-ip", "redis-cart-0/node-1/milan"]);
        let mut process = Process::start(&mut command, "Ready to accept connections")?;
        process.address = address;

        Some(process)
    };

    // Another process may use the port before Redis does.
    (0..10).find_map(start).expect("Redis starts")
}

impl Process {
    /// Starts a process, and waits for a line that contains `ready`. The address follows it.
    /// Returns `None` if the process ends before.
    fn start(command: &mut Command, ready: &str) -> Option<Self> {
        let child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
        let mut child = child.expect("redis-tools is installed, and the shop is built");
        let output = BufReader::new(child.stdout.take().expect("it is piped"));
        let mut process = Self {
            child,
            output,
            address: String::new(),
        };
        loop {
            let line = process.line()?;
            if let Some((_, address)) = line.split_once(ready) {
                process.address = address.to_owned();
                return Some(process);
            }
        }
    }

    fn line(&mut self) -> Option<String> {
        let mut line = String::new();
        let length = self.output.read_line(&mut line).expect("it prints text");

        (length > 0).then(|| line.trim_end().to_owned())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A browser with cookies.
pub(crate) struct Session {
    address: String,
    cookies: BTreeMap<String, String>,
}

/// Status and body of a response.
pub(crate) struct Response {
    pub(crate) status: u16,
    pub(crate) body: String,
}

impl Session {
    /// Requests a page.
    pub(crate) fn get(&mut self, path: &str) -> Response {
        self.exchange("GET", path, "")
    }

    /// Submits a form.
    pub(crate) fn post(&mut self, path: &str, form: &str) -> Response {
        self.exchange("POST", path, form)
    }

    /// Requests a JSON document.
    pub(crate) fn json(&mut self, path: &str) -> Value {
        serde_json::from_str(&self.get(path).body).expect("it is JSON")
    }

    fn exchange(&mut self, method: &str, path: &str, form: &str) -> Response {
        let cookies = self
            .cookies
            .iter()
            .map(|(name, value)| format!("{name}={value}"));
        let cookies = cookies.collect::<Vec<_>>().join("; ");
        let request = format!(
            "{method} {path} HTTP/1.1\r\nHost: shop\r\nConnection: close\r\nCookie: {cookies}\r\n\
             Content-Type: application/x-www-form-urlencoded\r\nContent-Length: {}\r\n\r\n{form}",
            form.len()
        );
        let mut stream = TcpStream::connect(&self.address).expect("it listens");
        stream.write_all(request.as_bytes()).expect("it reads");
        let mut response = String::new();
        stream.read_to_string(&mut response).expect("it responds");

        let (head, body) = response.split_once("\r\n\r\n").expect("a head");
        let cookies = head
            .lines()
            .filter_map(|it| it.strip_prefix("set-cookie: "));
        for (name, value) in cookies.filter_map(|it| it.split(';').next()?.split_once('=')) {
            self.cookies.insert(name.to_owned(), value.to_owned());
        }

        Response {
            status: head
                .split(' ')
                .nth(1)
                .and_then(|it| it.parse().ok())
                .expect("a status"),
            body: body.to_owned(),
        }
    }
}
