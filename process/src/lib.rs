//! What every process has: logs, metrics, health, a status socket, a watched file, a graceful stop.
