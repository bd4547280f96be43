"""Jobs on Kubernetes: what they are made of, who talks to the cluster, and what runs in the pods."""
