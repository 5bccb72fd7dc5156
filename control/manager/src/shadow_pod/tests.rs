use side::Side;

mod aliases;
mod changes;
mod demands;
mod golden;
mod hostile;
mod lifetime;
mod outcomes;
mod policies;
mod quotas;
mod side;
mod terms;
