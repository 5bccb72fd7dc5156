//! Buys products through the front end at a constant rate.

mod http;
mod report;

use http::{Exchange, Session};
use report::Report;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Semaphore, mpsc};
use tokio::time::{MissedTickBehavior, interval};

/// The maximum number of purchases in progress. At this limit, further purchases wait.
const PURCHASES_MAX: usize = 256;

/// The requests of a purchase: method, path, fields of the form, and a text of the expected page.
const PURCHASE: [(&str, &str, &str, &str); 6] = [
    ("GET", "/", "", "Enamel mug"),
    ("POST", "/currency", "currency=USD", ""),
    ("GET", "/product/mug", "", "Add to cart"),
    ("POST", "/cart", "product_id=mug&quantity=2", ""),
    ("GET", "/cart", "", "2 x Enamel mug"),
    (
        "POST",
        "/cart/checkout",
        "email=load%40example.com&address=Rome&card=4111111111111111",
        "data-order=",
    ),
];

/// Options of the load generator.
#[derive(clap::Args, Debug)]
pub(crate) struct Options {
    /// Host and port of the front end.
    #[arg(long, env = "FRONTEND_ADDR", default_value = "frontend:80")]
    address: String,

    /// Requests per second. A purchase consists of six requests.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rate: u32,

    /// Seconds during which purchases start.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=3600))]
    seconds: u32,

    /// The number of failed requests above which the exit code is 1.
    #[arg(long, default_value_t = 0)]
    max_failed: usize,
}

/// Buys products, and prints a report. The exit code is 1 if too many requests fail, or if no
/// purchase is complete.
pub(crate) async fn run(options: &Options) -> ExitCode {
    let steps = PURCHASE.len() as u32;
    let mut start = interval(Duration::from_secs(steps.into()) / options.rate);
    // A delayed purchase starts at once, so that the rate is kept.
    start.set_missed_tick_behavior(MissedTickBehavior::Burst);
    let permits = Arc::new(Semaphore::new(PURCHASES_MAX));
    let (sender, mut results) = mpsc::channel(PURCHASES_MAX);
    let address: Arc<str> = options.address.as_str().into();
    let purchases = (options.rate * options.seconds).div_ceil(steps);
    let generate = async move {
        for _ in 0..purchases {
            start.tick().await;
            let Ok(permit) = Arc::clone(&permits).acquire_owned().await else {
                return;
            };
            let (address, sender) = (Arc::clone(&address), sender.clone());
            tokio::spawn(async move {
                // The channel is open, because the report reads until all senders are dropped.
                let _ = sender.send(purchase(&address).await).await;
                drop(permit);
            });
        }
    };
    let mut report = Report::default();
    let collect = async {
        while let Some(exchanges) = results.recv().await {
            report.add(exchanges);
        }
    };
    tokio::join!(generate, collect);

    print!("{report}");
    if report.failed() > options.max_failed || report.purchases() == 0 {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    }
}

/// Buys one product in a session of its own. The first failed request ends the purchase.
async fn purchase(address: &str) -> Vec<Exchange> {
    let mut session = Session::new(address);
    let mut exchanges = Vec::with_capacity(PURCHASE.len());
    for (method, path, form, expected) in PURCHASE {
        let exchange = session.request(method, path, form, expected).await;
        let is_failed = exchange.is_err();
        exchanges.push(exchange);
        if is_failed {
            break;
        }
    }

    exchanges
}
