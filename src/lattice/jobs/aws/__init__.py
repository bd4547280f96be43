"""Jobs on AWS: instances in two groups, etcd and workers, that end with the job and do not outlive a forgotten one."""
