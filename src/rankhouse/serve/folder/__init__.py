"""A person's folder of files, made ready to be served: what changed is noticed, what is done stays done."""
