use side::{Side, key};

mod consumer;
mod golden;
mod provider;
mod side;
mod withdrawals;
