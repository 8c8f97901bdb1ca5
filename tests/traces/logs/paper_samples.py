"""A row, made up, of each trace of a paper: one job of ten minutes on a GPU, where it states run times."""

from __future__ import annotations

CHRONUS = (
    "job_id,user,num_gpu,submit_time,iterations,model_name,duration,interval,"
    "expect_time_list,expect_value_list,best_effort,job_type\n"
)
MURI = (
    "job_id,num_gpu,submit_time,iterations,model_name,batch_size,duration,interval,"
    "iteration_time,resource_time_0,resource_time_1,resource_time_2,priority\n"
)
MURI_RESULTS = (
    "time,job_id,num_gpu,submit_time,start_time,end_time,executed_time,real_executed_time,JCT,"
    "duration,pending_time,job_counter,promote\n"
)
TIRESIAS = "job_id,num_gpu,submit_time,iterations,model_name,duration,interval\n"
MORPHLING = "name,submission_time,duration,application,num_gpus,num_cpus,bandwidth,exec_plan,steps,is_sla\n"
POLLUX = "name,time,application,num_replicas,batch_size\n"


def shockwave(
    kind: str, steps: float, gpus: int, duration_s: float, arrival_s: float, mode: str = "static"
) -> str:
    cells = (kind, "python3 a.py", "folder", "--steps", 1, steps, gpus, mode, 1, -1.0, duration_s, arrival_s)
    return "\t".join(map(str, cells)) + "\n"


def gavel(kind: str, steps: float, arrival_s: float, gpus: int, *more: float) -> str:
    return (
        "\t".join(map(str, (kind, "cd %s && python3 a.py ", "-n", 1, steps, arrival_s, gpus, *more))) + "\n"
    )


PAPER_SAMPLES: dict[str, str | dict[str, str]] = {
    "elasticflow": "job_id,submission_time,num_iteration,model_name,deadline,batch_size,num_gpu,duration\n"
    "a,0,9,bert,900,64,1,600\n",
    "chronus": CHRONUS + "0,v,1,12,9,vgg,10,8,30,10,0,strict\n",
    "muri": MURI + "0,1,0,9,vgg,16,600000,0,100,1,2,3,0\n",
    "muri-results": MURI_RESULTS + "640,0,1,0,20,640,620,600,640,590,40,2,0\n",
    "tiresias": TIRESIAS + "0,1,0,9,vgg,600,0\n",
    "morphling": MORPHLING + "t5-0,0,600,t5,1,8,0,ga,9,0\n",
    "gaia": "arrival_time,length,cpus\n0,600,1\n",
    "shockwave": shockwave("LM (batch size 5)", 6000, 1, 600, 0.0),
}
WITHOUT_RUN_TIMES: dict[str, str | dict[str, str]] = {
    "gavel": gavel("LM (batch size 5)", 6000, 0.0, 1),
    "pollux": POLLUX + "bert-0,0,bert,1,384\n",
}
