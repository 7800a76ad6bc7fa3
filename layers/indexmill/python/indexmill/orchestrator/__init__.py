"""The control plane: owns job state and the pipeline's topology."""
