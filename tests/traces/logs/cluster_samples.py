"""A few rows, made up, of each log of a production cluster: one job of ten minutes on a GPU."""

from __future__ import annotations

SEREN = (
    "job_id,user,node_num,gpu_num,cpu_num,type,state,submit_time,start_time,end_time,"
    "duration,queue,gpu_time\n"
)
KALOS = (
    "job_id,user,node_num,gpu_num,cpu_num,mem_per_pod_GB,shared_mem_per_pod,type,state,submit_time,start_time,"
    "end_time,fail_time,stop_time,duration,queue,gpu_time\n"
)
OPENB = (
    "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,"
    "creation_time,deletion_time,scheduled_time\n"
)
DLRM = (
    "instance_sn,role,app_name,cpu_request,cpu_limit,gpu_request,gpu_limit,rdma_request,rdma_limit,"
    "memory_request,memory_limit,disk_request,disk_limit,max_instance_per_node,"
    "creation_time,scheduled_time,deletion_time\n"
)

CLUSTER_SAMPLES: dict[str, str | dict[str, str]] = {
    "acme": SEREN
    + "a,u,1,1,16,Eval,COMPLETED,2023-03-01 00:00:00+08:00,2023-03-01 00:00:30+08:00,"
    + "2023-03-01 00:10:30+08:00,600,30,600.0\n",
    "kalos-converted": "job,arrival,gpu_workers,iterations,iteration_time\na,0,1,1200,0.5\n",
    "openb": OPENB + "a,4000,9000,1,1000,,LS,Succeeded,5,615,15\n",
    "dlrm": DLRM + "a,HN,app,8,8,1,1,9,9,9,9,9,9,8,5,15,615\n",
    "pai": {
        "pai_job_table.csv": "a,i,u,Terminated,5.0,620.0\n",
        "pai_task_table.csv": "a,worker,2.0,Terminated,15.0,615.0,600.0,30.0,50.0,T4\n"
        "a,ps,1.0,Terminated,10.0,620.0,600.0,30.0,,MISC\n",
    },
}
