import json,sys,hashlib,glob,time
import numpy as np
sys.path.insert(0,'/work/main')
from simrl.rollout import scheduler as S
from simrl.rollout.engine import build_state, EngineOptions
from simrl.rollout.kv_cache import clear_prefix_cache
from simrl.rollout.state import *
def options(o, old):
    return EngineOptions(blocks=o['num_gpu_blocks'],block_size=o['block_size'],max_num_batched_tokens=o['max_num_batched_tokens'],max_num_seqs=o['max_num_seqs'],max_model_len=o['max_model_len'],long_prefill_token_threshold=o['long_prefill_token_threshold'],reserve_full_isl=o['scheduler_reserve_full_isl'],watermark=o['watermark'],prefix_caching=o['enable_prefix_caching'],free_order='append' if old else 'hashless_first')
def replay(o, requests, events, old):
    s=build_state(options(o,old),slots=max(16,len(requests)))
    e=s.engine[0]; R=s.requests
    trace=[];results=[];finish=[];
    arrivals={}
    for q in requests: arrivals.setdefault(q[5],[]).append(q)
    evs={}
    for ev in events: evs.setdefault((ev['iter'],ev['when']),[]).append(ev)
    last=max([q[5] for q in requests]+[ev['iter'] for ev in events]+[0])
    known=set()
    def do(ev,k):
        op=ev['op'];res=None
        if op=='abort':
            res=[]
            for i in ev['ids']:
                if i in known and R[i]['status'] in (WAITING,RUNNING):
                    S.abort(s,i);res.append(i)
        elif op=='reset':
            if ev['reset_running_requests']:
                e['preempted']=0
                S.reset_running(s)
                ids=[int(x) for x in s.preempted[:e['preempted']]]
                res=[True if True else False, ids]
            else: res=[bool(clear_prefix_cache(s)),[]]
        elif op=='pause_keep': e['paused']=PAUSED_ALL
        elif op=='pause_new': e['paused']=PAUSED_NEW
        elif op=='resume': e['paused']=UNPAUSED
        results.append([k,ev['when'],op,res])
    k=0
    while True:
        for q in arrivals.get(k,[]):
            S.submit(s,q[0],q[0],q[3],q[4],q[1],q[2]); known.add(q[0])
        for ev in evs.get((k,'pre'),[]): do(ev,k)
        if k>last and e['running']+e['waiting']==0: break
        S.schedule(s)
        sched=[[int(x['slot']),int(x['computed_before']),int(x['tokens'])] for x in s.scheduled[:e['scheduled']]]
        pre=[int(x) for x in s.preempted[:e['preempted']]]
        row=[k,sched,pre,None,int(e['free_blocks']),None,int(e['running']),int(e['waiting']),int(e['hashed_blocks'])]
        for ev in evs.get((k,'mid'),[]): do(ev,k)
        S.update(s)
        fin=[int(x) for x in s.finished[:e['finished']]]
        row[3]=fin;row[5]=int(e['free_blocks'])
        for f in fin: finish.append([f,k])
        if sched or pre or fin: trace.append(row)
        k+=1
        if k>200000: raise SystemExit('runaway')
    return trace,results,finish
ok=bad=0
t=time.time()
for f in sorted(glob.glob('/work/main/tests/goldens/vllm/*.json')):
    d=json.load(open(f))
    if d['scheduler']!='Scheduler': continue
    old=d['vllm_version'].startswith('0.16')
    if 'cases' in d: cases=[dict(c,options={**d['default_options'],**c['options']}) for c in d['cases']]
    else: cases=[dict(d,**d['summary'])]
    for c in cases:
        tr,res,fin=replay(c['options'],c['requests'],c['events'],old)
        d8=hashlib.sha256(json.dumps([r[:8] for r in tr],separators=(',',':')).encode()).hexdigest()
        d9=hashlib.sha256(json.dumps(tr,separators=(',',':')).encode()).hexdigest()
        good = d8==c['digest8'] and (('digest9' not in c) or d9==c['digest9']) and sorted(res,key=str)==sorted(c['event_results'],key=str) if True else 0
        if good: ok+=1
        else:
            bad+=1
            if bad<6:
                print(f.split('/')[-1],c.get('id'),d8==c['digest8'],res==c['event_results'])
                if 'trace' in c:
                    for a,b in zip(tr,c['trace']):
                        if a!=b: print(a);print(b);break
                else:
                    for a,b in zip(res,c['event_results']):
                        if a!=b: print(a,b);break
print(ok,bad,time.time()-t)
