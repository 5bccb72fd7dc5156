use side::Side;

mod aliases;
mod changes;
mod demands;
mod destinations;
mod golden;
mod hostile;
mod lifetime;
mod outcomes;
mod policies;
mod quotas;
mod side;
mod terms;
