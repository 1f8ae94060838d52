"""What is simulated: engines, staleness control, trainer, workload and costs; records come out."""
