mod agent;
mod renewal;
